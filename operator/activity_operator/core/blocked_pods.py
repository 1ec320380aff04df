"""Pods that the cluster keeps waiting: no node fits, the kubelet does not start them, or a volume is missing."""

from collections.abc import Iterator

from activity_operator.api.conditions import Reason
from activity_operator.core.fleet import START_DEADLINE_SECONDS, Member
from activity_operator.core.lifecycle_ring import ORDINARY_WAITS
from activity_operator.core.observation import Observation, PodFacts
from activity_operator.core.situation import Situation


def first_blocked(situation: Situation) -> tuple[Reason, str] | None:
    """Return reason and message for the first pod that the cluster keeps waiting, or None."""
    observation = situation.observation
    for member in situation.fleet.members:
        pod = member.pod
        if pod.unschedulable:
            return Reason.WORKERS_UNSCHEDULABLE, f"pod {pod.name}: {pod.unschedulable}"
        if _due(observation, pod.untaken_since):
            return Reason.WORKERS_NOT_READY, _untaken(pod.name)
        if _takes_too_long(observation, member):
            return Reason.WORKERS_NOT_READY, _missing(member)
    return None


def unprepared_pod(situation: Situation) -> str | None:
    """Return why further pods would wait for their volumes as well, or None if later pods have started.

    Unschedulable pods do not count: a cluster autoscaler needs to see them to add nodes.
    """
    fleet = situation.fleet
    stuck = [member for member in fleet.members if _takes_too_long(situation.observation, member)]
    if not stuck or any(m.report is not None and m.pod.created >= stuck[0].pod.created for m in fleet.members):
        return None
    return _missing(stuck[0])


def late_pod(situation: Situation) -> tuple[str, str]:
    """Return the name of a pod that does not come, and a sentence with the cause; "" and "" if none is late."""
    late = [m for m in situation.fleet.serving if _awaited(m) and _due(situation.observation, m.pod.created)]
    if not late:
        return "", ""
    pod = min((member.pod for member in late), key=lambda one: (one.created, one.name))
    return pod.name, f"pod {pod.name} has not come for {START_DEADLINE_SECONDS:.0f} s and more: {_why_late(pod)}"


def recheck_times(situation: Situation) -> Iterator[float]:
    """Yield the Unix times from which a pod that is awaited is late."""
    yield from (m.pod.created + START_DEADLINE_SECONDS for m in situation.fleet.serving if _awaited(m))


def _awaited(member: Member) -> bool:
    return member.report is None and not member.unheard and not member.failed_start


def _why_late(pod: PodFacts) -> str:
    if pod.unschedulable:
        return "the scheduler finds no node for it"
    if pod.waiting_reason not in ORDINARY_WAITS:
        return f"its container waits ({pod.waiting_reason})"
    if pod.untaken_since:
        return "the kubelet of its node has not begun with it"
    if pod.unprepared_since:
        return "its volumes or its network are missing"
    return "its container runs and has not reported" if pod.running_since else "its container does not run"


def _due(observation: Observation, since: float) -> bool:
    return bool(since) and observation.now >= since + START_DEADLINE_SECONDS


def _takes_too_long(observation: Observation, member: Member) -> bool:
    return member.report is None and _due(observation, member.pod.unprepared_since)


def _untaken(pod: str) -> str:
    return (
        f"pod {pod} has had a node for {START_DEADLINE_SECONDS:.0f} s and more, whose kubelet has not begun with it: "
        f"is that node Ready? `kubectl describe pod {pod}` says which it is"
    )


def _missing(member: Member) -> str:
    pod = member.pod.name
    return (
        f"pod {pod} has waited {START_DEADLINE_SECONDS:.0f} s and more for its volumes or its network: "
        "does every Secret, ConfigMap and claim that spec.podTemplate mounts exist? "
        f"`kubectl describe pod {pod}` says what is missing"
    )


def blocked_at(member: Member) -> float | None:
    """Return the Unix time from which this pod's wait for kubelet or volumes is too long, None if it does not wait."""
    since = member.pod.untaken_since or member.pod.unprepared_since
    return since + START_DEADLINE_SECONDS if since and member.report is None else None
