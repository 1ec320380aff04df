"""From tasks to workers: the number that the work needs, before any limit."""

import math
from dataclasses import dataclass, field

from activity_operator.core import target_wait
from activity_operator.core.backlog import Backlog, known_backlog
from activity_operator.core.decision import Limit
from activity_operator.core.estimates import NO_ESTIMATES, Estimates
from activity_operator.core.fleet import Fleet
from activity_operator.core.probing import counts_by_polls, unreachable_slots
from activity_operator.core.saturation import Saturation, is_established, next_step, track_saturation
from activity_operator.core.situation import Situation

#: Longest tasks in seconds of which the reports show too few: a worker reports once a second.
SHORT_TASK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Demand:
    """How many workers the work needs, and the reason as a sentence. `tasks` are all known tasks.

    `limit` is the rule that raised the number, `Limit.DEMAND` if none did.
    """

    workers: int
    tasks: int
    reason: str
    saturation: Saturation | None = None
    backlog: Backlog = field(default_factory=Backlog)
    limit: Limit = Limit.DEMAND


def task_demand(
    situation: Situation, saturated: Saturation | None, emptied_at: float = 0.0, estimates: Estimates = NO_ESTIMATES
) -> Demand:
    """Return the workers for all tasks: in flight, held as leases, in the backlog. Saturation may add workers.

    A task that waits needs a slot of its own unless a slot becomes free for it within the target wait. Without an exact
    count, the operator's polls count the tasks while every worker is busy. Where the operator may not poll, a backlog
    shows only in the slots: while tasks run, one slot is kept free, and an idle slot proves that no task waits. When
    every slot stays busy, the pool grows in steps. A lower bound of the backlog can only raise the demand: it is
    minutes old, so the tasks that it counted may already be running.
    """
    spec, observation, fleet = situation.spec, situation.observation, situation.fleet
    held = observation.source.held + observation.source.claimed
    backlog = known_backlog(situation, emptied_at)
    tasks = fleet.inflight + held + (backlog.tasks or 0)
    if not backlog.exact:
        tasks = max(fleet.inflight + held, backlog.tasks or 0)
    per_worker = spec.slots_per_worker * spec.scaling.target_utilization
    counted = backlog.exact and backlog.tasks is not None
    workers = math.ceil(round(_slots(situation, tasks, estimates, counted=counted) / per_worker, 9))
    reason = _sentence(fleet, held, backlog)
    full = None
    if not counted:
        full = track_saturation(fleet, saturated)
        if not counts_by_polls(situation):
            full, by_slots = _grown_by_slots(situation, full)
            if full is not None and by_slots > max(workers, len(fleet.serving)):
                reason = f"all {len(fleet.polling)} workers are busy: {full.step} more"
            workers = max(workers, by_slots)
    # A worker that has not reported to the new leader stays, but adds no demand.
    workers = max(workers, min(workers + fleet.unheard, len(fleet.serving)))
    workers += len(fleet.stalled) - fleet.silent_ready
    workers = max(workers, min(workers + fleet.silent_ready, fleet.present))
    return Demand(workers, tasks, reason, full, backlog)


def _slots(situation: Situation, tasks: int, estimates: Estimates, *, counted: bool) -> int:
    """Return the slots for these tasks.

    A held lease cannot be given to a slot with an open poll, for up to a minute. So such slots come on top, unless busy
    slots become free in time. They take new tasks meanwhile. A slot is busy from the claim of a lease, also before a
    report shows it. Of short tasks the reports show too few, so without an exact count the workers' counters tell how
    many slots they occupy: at most all of them, because a slow report brings the work of several seconds at once.
    """
    spec, source, fleet = situation.spec, situation.observation.source, situation.fleet
    running = fleet.inflight + source.claimed
    polling = max(unreachable_slots(fleet.members) - source.claimed, 0) if source.held else 0
    late = target_wait.late_tasks(spec, estimates, tasks - running, running, polling)
    if not counted and estimates.task_seconds is not None and estimates.task_seconds <= SHORT_TASK_SECONDS:
        slots = sum(member.slots for member in fleet.working)
        running = max(running, min(round(estimates.occupied), slots))
    return running + (math.ceil(late / target_wait.tasks_for_slot(spec, estimates)) + polling if late else 0)


def _grown_by_slots(situation: Situation, full: Saturation | None) -> tuple[Saturation | None, int]:
    """Return the workers where only the slots show a backlog: one free slot, or the next step while all stay busy."""
    spec, now, fleet = situation.spec, situation.observation.now, situation.fleet
    if full is not None and is_established(full, fleet, now):
        full = next_step(full, fleet, now)
        return full, max(full.asked, len(fleet.serving))
    return full, fleet.inflight // spec.slots_per_worker + 1 if fleet.inflight else 0


def _sentence(fleet: Fleet, held: int, backlog: Backlog) -> str:
    parts = [f"{fleet.inflight} running", f"{held} held"]
    if fleet.unheard:
        parts.append(f"{fleet.unheard} workers yet to report to this leader")
    if backlog.tasks is not None:
        parts.append(f"{backlog.tasks} waiting" if backlog.exact else f"at least {backlog.tasks} waiting")
    elif backlog.unknown:
        parts.append(backlog.unknown)
    return ", ".join(parts)
