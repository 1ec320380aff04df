"""When more workers would not help: those that are there leave waiting tasks alone, end again and again, or are mute.

A pool that grows on a count cannot tell a backlog from a number that is wrong, or from tasks that its image cannot
take. Its workers can: while tasks wait, nobody who can take one stays idle. So growth stops as soon as more workers
bear witness against it than for it. One alone may be at fault itself, and does not stop a second.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from activity_operator.core.decision import Limit
from activity_operator.core.demand import Demand
from activity_operator.core.fleet import START_DEADLINE_SECONDS, Member
from activity_operator.core.observation import Observation
from activity_operator.core.situation import Situation

#: Seconds for which a free slot must have had nothing while tasks waited: a poll may block the others for a minute.
IDLE_SECONDS = 60.0
#: Seconds without a task after which a worker no longer speaks for more of its kind: it is new, or about to be idle.
USEFUL_SECONDS = 5.0
#: Seconds that a container must run after its last end to be believed in again.
CRASH_SECONDS = 60.0
#: Workers that a pool may have whatever the first one does.
WITNESSES = 2

_CRASH_LOOP = "CrashLoopBackOff"


@dataclass(frozen=True, slots=True)
class GrowthStop:
    """Which rule stops growth (`idle`, `crashing` or `mute`), and the sentence for people."""

    limit: Limit
    reason: str


def waiting_since(situation: Situation, demand: Demand, before: float | None) -> float | None:
    """Return since when tasks have waited that nobody has, None while none is known to."""
    observation = situation.observation
    tasks = demand.backlog.tasks or 0
    if not demand.backlog.exact:
        # A bound may count tasks that run or are held by now.
        tasks -= situation.fleet.inflight + observation.source.held + observation.source.claimed
    if tasks <= 0:
        return None
    return observation.now if before is None else before


def growth_stop(situation: Situation, since: float | None) -> GrowthStop | None:
    """Return why more workers would not help, None while they may. `since` is when tasks began to wait."""
    observation, fleet = situation.observation, situation.fleet
    crashing = [member for member in fleet.members if _crashes(observation, member)]
    mute = [member for member in fleet.serving if _mute_at(observation, member) <= observation.now]
    idle = [m for m in fleet.working if m not in crashing and _is_idle(m)] if _waited(observation, since) else []
    useful = [member for member in fleet.working if member not in crashing and _is_useful(member)]
    if len(crashing) + len(mute) + len(idle) <= len(useful):
        return None
    _, limit, names, words = max(
        (len(crashing), Limit.CRASHING, crashing, "ended and had to be started again"),
        (len(mute), Limit.MUTE, mute, f"have been ready for {START_DEADLINE_SECONDS:.0f} s and never reported"),
        (len(idle), Limit.IDLE, idle, f"have had nothing to do for {IDLE_SECONDS:.0f} s while tasks are said to wait"),
        key=lambda kind: kind[0],
    )
    pod = min(member.pod.name for member in names)
    return GrowthStop(limit, f"{len(names)} of {fleet.present} workers {words} ({_evidence(limit, names, pod)})")


def recheck_times(situation: Situation, since: float | None) -> Iterator[float]:
    """Yield the Unix times at which time alone can change the answer."""
    observation, fleet = situation.observation, situation.fleet
    if since is not None:
        yield since + IDLE_SECONDS
        yield from (observation.now + IDLE_SECONDS - m.idle_for for m in fleet.working if m.busy < m.slots)
    if since is not None or any(_ended_before(member) or member.report is None for member in fleet.members):
        yield from (observation.now + USEFUL_SECONDS - m.idle_for for m in fleet.working if not m.busy)
    for member in fleet.members:
        if member.report is None:
            at = _mute_at(observation, member)
            if at != float("inf"):
                yield at
        elif member.pod.running_since and _ended_before(member):
            yield member.pod.running_since + CRASH_SECONDS


def _waited(observation: Observation, since: float | None) -> bool:
    """Whether tasks have waited for so long that an idle worker would have taken one; what is held comes by itself."""
    return since is not None and observation.now - since >= IDLE_SECONDS and not observation.source.held


def _is_idle(member: Member) -> bool:
    return member.busy < member.slots and member.idle_for >= IDLE_SECONDS


def _is_useful(member: Member) -> bool:
    return member.busy > 0 or member.idle_for < USEFUL_SECONDS


def _mute_at(observation: Observation, member: Member) -> float:
    """Return from when a pod that is ready and never reported counts as mute, infinity for every other."""
    if member.report is not None or member.failed_start or not member.pod.ready:
        return float("inf")
    return max(member.pod.ready_since, observation.leader_since) + START_DEADLINE_SECONDS


def _crashes(observation: Observation, member: Member) -> bool:
    """Whether a worker that had reported has just ended by a fault; one that never did is the start breaker's."""
    if member.report is None or not _ended_before(member):
        return False
    pod = member.pod
    down = pod.waiting_reason == _CRASH_LOOP or not pod.running_since
    return down or observation.now - pod.running_since < CRASH_SECONDS


def _ended_before(member: Member) -> bool:
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
