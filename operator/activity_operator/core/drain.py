"""How workers leave: whom to cordon, whom to call back, and how far replicas may fall without killing anyone."""

from collections.abc import Iterable

from activity_operator.core.fleet import Member
from activity_worker.contract import WorkerState

_PHASE_RANK = {"Pending": 0, "Unknown": 1, "Running": 2}

RemovalOrder = tuple[bool, int, bool, int]


def removal_order(member: Member) -> RemovalOrder:
    """Return the leading keys by which a ReplicaSet picks pods to remove, smallest first.

    Unassigned, then Pending, then not ready, then by pod-deletion-cost; later keys (age, restarts) only break ties
    (Kubernetes `controller.ActivePodsWithRanks`).
    """
    pod = member.pod
    return (pod.assigned, _PHASE_RANK.get(pod.phase, 1), pod.ready, pod.deletion_cost or 0)


def removable(member: Member) -> bool:
    """Whether the pod may go now: it never started, or it is drained and the watch shows cost and unreadiness."""
    return member.never_started or (member.drained and member.cordoned and not member.pod.ready)


def lowest_replicas(members: Iterable[Member], replicas: int, wanted: int) -> int:
    """Return the lowest `replicas`, not below `wanted`, at which the ReplicaSet can remove only removable pods.

    Pods it has yet to create (replicas above the pods seen) go first: what is not there runs nothing. Pods above
    replicas are about to be removed, so they are spent from the removable ones.
    """
    ordered = sorted(members, key=latest_order)
    safe = 0
    for member in ordered:
        if not removable(member):
            break
        safe += 1
    if safe < len(ordered):
        tied = latest_order(ordered[safe])
        while safe and latest_order(ordered[safe - 1]) == tied:
            safe -= 1
    return max(wanted, min(replicas, len(ordered) - safe))


def latest_order(member: Member) -> RemovalOrder:
    """Return the removal order that a pod may have by now: one that never started may run since, where a watch lags.

    Ready it is not: then its Deployment's status says another number, and the write that lowers is answered 409.
    """
    if not member.never_started:
        return removal_order(member)
    return (True, _PHASE_RANK["Running"], False, member.pod.deletion_cost or 0)


def choose_victims(serving: Iterable[Member], surplus: int) -> tuple[Member, ...]:
    """Return whom to cordon: the longest idle first, then the least busy. Idle time orders, it never vetoes.

    A pod that never started needs no cordon, and one that has not reported cannot be told.
    """
    candidates = [member for member in serving if member.report is not None]
    candidates.sort(key=lambda member: (member.busy, -member.idle_for, member.pod.created, member.pod.uid))
    return tuple(candidates[: max(0, surplus)])


def unmarked(members: Iterable[Member]) -> tuple[Member, ...]:
    """Return drained workers without a cost: one said drained just as it was called back, and no way leads back."""
    return tuple(
        m for m in members if m.report is not None and m.report.state is WorkerState.DRAINED and not m.cordoned
    )


def callable_back(members: Iterable[Member], number: int) -> tuple[Member, ...]:
    """Return cordoned workers that may serve again, because they have not yet said drained: busiest first."""
    candidates = [m for m in members if m.cordoned and not m.drained and not m.stalled and m.report is not None]
    candidates.sort(key=lambda member: (-member.busy, member.pod.created, member.pod.uid))
    return tuple(candidates[: max(0, number)])
