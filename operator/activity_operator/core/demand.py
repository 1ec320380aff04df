"""From tasks to workers: the number that the work needs, before any limit."""

import math
from dataclasses import dataclass, field

from activity_operator.core.backlog import Backlog, known_backlog
from activity_operator.core.decision import Limit
from activity_operator.core.fleet import Fleet
from activity_operator.core.saturation import Saturation, is_established, track_saturation
from activity_operator.core.situation import Situation


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


def task_demand(situation: Situation, saturated: Saturation | None, emptied_at: float = 0.0) -> Demand:
    """Return the workers for all tasks: in flight, held as leases, in the backlog. Saturation may add workers.

    Without an exact count, a backlog shows only in the slots: every slot is busy. So while tasks run, one slot is kept
    free, and an idle slot proves that no task waits. When every slot stays busy, the pool doubles; it doubles again
    only after the new workers have reported. A lower bound of the backlog can only raise the demand: it is minutes old,
    so the tasks that it counted may already be running.
    """
    spec, observation, fleet = situation.spec, situation.observation, situation.fleet
    held = observation.source.held + observation.source.claimed
    backlog = known_backlog(situation, emptied_at)
    tasks = fleet.inflight + held + (backlog.tasks or 0)
    if not backlog.exact:
        tasks = max(fleet.inflight + held, backlog.tasks or 0)
    per_worker = spec.slots_per_worker * spec.scaling.target_utilization
    workers = math.ceil(round((tasks + _unreachable_slots(situation)) / per_worker, 9))
    reason = _sentence(fleet, held, backlog)
    full = None
    if backlog.tasks is None or not backlog.exact:
        full = track_saturation(fleet, saturated)
        if full is not None and is_established(full, fleet, observation.now):
            grown = 2 * len(fleet.working)
            if grown > workers and len(fleet.working) == len(fleet.serving):
                reason = f"all {len(fleet.working)} workers are busy: doubling"
                workers = grown
            else:
                workers = max(workers, len(fleet.serving))
        elif fleet.inflight:
            workers = max(workers, fleet.inflight // spec.slots_per_worker + 1)
    # A worker that has not reported to the new leader stays, but adds no demand.
    workers = max(workers, min(workers + fleet.unheard, len(fleet.serving)))
    workers += len(fleet.stalled) - fleet.silent_ready
    workers = max(workers, min(workers + fleet.silent_ready, fleet.present))
    return Demand(workers, tasks, reason, full, backlog)


def _unreachable_slots(situation: Situation) -> int:
    """Return how many free slots cannot take a held lease because their poll is open, for up to a minute.

    The sentinel's last polls stay open after the first worker has started. A lease from such a poll needs a worker
    without open polls, so the demand rises by one slot for each.
    """
    observation = situation.observation
    if not observation.source.held:
        return 0
    polling = sum(
        min(m.slots - m.busy, m.report.open_polls) for m in situation.fleet.working if m.idle and m.report is not None
    )
    return max(0, polling - observation.source.claimed)


def _sentence(fleet: Fleet, held: int, backlog: Backlog) -> str:
    parts = [f"{fleet.inflight} running", f"{held} held"]
    if fleet.unheard:
        parts.append(f"{fleet.unheard} workers yet to report to this leader")
    if backlog.tasks is not None:
        parts.append(f"{backlog.tasks} waiting" if backlog.exact else f"at least {backlog.tasks} waiting")
    elif backlog.unknown:
        parts.append(backlog.unknown)
    return ", ".join(parts)
