"""Pods that wait for the cluster, not for us: no node takes them, or their node lacks what they mount."""

from activity_operator.api.conditions import Reason
from activity_operator.core.fleet import START_DEADLINE_SECONDS, Fleet, Member
from activity_operator.core.observation import Observation


def hindrance(seen: Observation, fleet: Fleet) -> tuple[Reason, str] | None:
    """Return reason and message for the first pod that is kept waiting, None when none is."""
    for member in fleet.members:
        pod = member.pod
        if pod.unschedulable:
            return Reason.WORKERS_UNSCHEDULABLE, f"pod {pod.name}: {pod.unschedulable}"
        due = unprepared_at(member)
        if due is not None and seen.now >= due:
            return Reason.WORKERS_NOT_READY, (
                f"pod {pod.name} has waited {START_DEADLINE_SECONDS:.0f} s and more for its volumes or its network: "
                "does every Secret, ConfigMap and claim that spec.podTemplate mounts exist? "
                f"`kubectl describe pod {pod.name}` says what is missing"
            )
    return None


def unprepared_at(member: Member) -> float | None:
    """Return the Unix time from which the preparation of a pod takes too long, None when it is prepared."""
    since = member.pod.unprepared_since
    return since + START_DEADLINE_SECONDS if since and member.said is None else None
