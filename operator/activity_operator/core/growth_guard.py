"""When more workers would not help: the present ones stay idle while tasks wait, crash repeatedly, or never report.

A count alone does not show whether it is right and whether the pool's image can take the tasks. The workers show it:
while tasks wait, a worker that can take one is busy. So growth stops as soon as the workers at fault outnumber the
useful ones. A single faulty worker does not stop a second one (`WITNESSES`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from activity_operator.core.backlog import unreported_running
from activity_operator.core.decision import Limit
from activity_operator.core.demand import Demand
from activity_operator.core.fleet import START_DEADLINE_SECONDS, Member
from activity_operator.core.observation import Observation
from activity_operator.core.situation import Situation

#: Seconds without a task, while tasks wait, after which a free slot counts as idle: one poll can block others as long.
IDLE_SECONDS = 60.0
#: Seconds without a task after which a worker no longer counts as useful.
USEFUL_SECONDS = 5.0
#: Seconds for which a restarted container must run before it no longer counts as crashing.
CRASH_SECONDS = 60.0
#: Number of workers up to which a pool may always grow, even if the first worker is at fault.
WITNESSES = 2

_CRASH_LOOP = "CrashLoopBackOff"


@dataclass(frozen=True, slots=True)
class GrowthStop:
    """Which rule stops growth (`idle`, `crashing` or `mute`), and the sentence for people."""

    limit: Limit
    reason: str


def waiting_since(situation: Situation, demand: Demand, before: float | None) -> float | None:
    """Return when unleased tasks began to wait (Unix seconds), or None if no task is known to wait."""
    observation = situation.observation
    tasks = (demand.backlog.tasks or 0) - unreported_running(observation)
    if not demand.backlog.exact:
        # A lower bound may include tasks that have been leased since.
        tasks -= situation.fleet.inflight + observation.source.held + observation.source.claimed
    if tasks <= 0:
        return None
    return observation.now if before is None else before


def growth_stop(situation: Situation, since: float | None) -> GrowthStop | None:
    """Return why more workers would not help, None if they may. `since` is when tasks began to wait, Unix seconds."""
    observation, fleet = situation.observation, situation.fleet
    crashing = [member for member in fleet.members if _crashes(observation, member)]
    mute = [member for member in fleet.serving if first_report_due_at(observation, member) <= observation.now]
    idle = [m for m in fleet.working if m not in crashing and _is_idle(m)] if _waited(observation, since) else []
    useful = [member for member in fleet.working if member not in crashing and _is_useful(member)]
    if len(crashing) + len(mute) + len(idle) <= len(useful):
        return None
    _, limit, members, words = max(
        (len(crashing), Limit.CRASHING, crashing, "ended and had to be started again"),
        (len(mute), Limit.MUTE, mute, f"have been ready for {START_DEADLINE_SECONDS:.0f} s and never reported"),
        (len(idle), Limit.IDLE, idle, f"have had nothing to do for {IDLE_SECONDS:.0f} s while tasks are said to wait"),
        key=lambda kind: kind[0],
    )
    pod = min(member.pod.name for member in members)
    return GrowthStop(limit, f"{len(members)} of {fleet.present} workers {words} ({_evidence(limit, members, pod)})")


def recheck_times(situation: Situation, since: float | None) -> Iterator[float]:
    """Yield the Unix times at which time alone can change the result of `growth_stop`."""
    observation, fleet = situation.observation, situation.fleet
    if since is not None:
        yield since + IDLE_SECONDS
        yield from (observation.now + IDLE_SECONDS - m.idle_for for m in fleet.working if m.busy < m.slots)
    if since is not None or any(_ended_before(member) or member.report is None for member in fleet.members):
        yield from (observation.now + USEFUL_SECONDS - m.idle_for for m in fleet.working if not m.busy)
    for member in fleet.members:
        if member.report is None:
            at = first_report_due_at(observation, member)
            if at != float("inf"):
                yield at
        elif member.pod.running_since and _ended_before(member):
            yield member.pod.running_since + CRASH_SECONDS


def _waited(observation: Observation, since: float | None) -> bool:
    """Whether tasks have waited so long that an idle worker would have taken one, and the operator holds no lease."""
    return since is not None and observation.now - since >= IDLE_SECONDS and not observation.source.held


def _is_idle(member: Member) -> bool:
    return member.busy < member.slots and member.idle_for >= IDLE_SECONDS


def _is_useful(member: Member) -> bool:
    return member.busy > 0 or member.idle_for < USEFUL_SECONDS


def first_report_due_at(observation: Observation, member: Member) -> float:
    """Return the Unix time from which a ready pod without a report counts as mute, infinity for every other pod."""
    if member.report is not None or member.failed_start or not member.pod.ready:
        return float("inf")
    return max(member.pod.ready_since, observation.leader_since) + START_DEADLINE_SECONDS


def _crashes(observation: Observation, member: Member) -> bool:
    """Whether a worker that has reported has just crashed. Workers that never reported concern the start breaker."""
    if member.report is None or not _ended_before(member):
        return False
    pod = member.pod
    down = pod.waiting_reason == _CRASH_LOOP or not pod.running_since
    return down or observation.now - pod.running_since < CRASH_SECONDS


def _ended_before(member: Member) -> bool:
    """Whether the container's last run before this one ended with an error."""
    return member.pod.last_exit_code not in {None, 0}


def _evidence(limit: Limit, members: list[Member], pod: str) -> str:
    match limit:
        case Limit.CRASHING:
            ended = next(member.pod for member in members if member.pod.name == pod)
            return f"pod {pod}: exit code {ended.last_exit_code}; `kubectl logs {pod} --previous` says why"
        case Limit.MUTE:
            return f"pod {pod}: may it reach the operator's report Service?"
        case _:
            return f"pod {pod}: do its polls ask for the very tasks that are counted?"
