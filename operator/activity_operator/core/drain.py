"""How workers leave: which to cordon, which to uncordon, and how far replicas may fall without ending a task."""

from collections.abc import Iterable

from activity_operator.core.fleet import CORDON_COST, DRAINED_COST, Member
from activity_worker.contract import WorkerState

_PHASE_RANK = {"Pending": 0, "Unknown": 1, "Running": 2}

RemovalOrder = tuple[bool, int, bool, int]


def removal_order(member: Member) -> RemovalOrder:
    """Return the first keys of the order in which a ReplicaSet removes pods, smallest first.

    Pods without a node go first, then Pending ones, then unready ones, then by pod-deletion-cost. Later keys (age,
    restarts) only break ties (Kubernetes `controller.ActivePodsWithRanks`).
    """
    pod = member.pod
    return (pod.assigned, _PHASE_RANK.get(pod.phase, 1), pod.ready, pod.deletion_cost or 0)


def removable(member: Member) -> bool:
    """Whether the pod may go now: it never started, or it is drained and the watch shows its cost and it unready."""
    drained = member.drained and member.pod.deletion_cost == DRAINED_COST
    return member.never_started or (drained and not member.pod.ready)


def lowest_replicas(members: Iterable[Member], replicas: int, wanted: int) -> int:
    """Return the lowest `replicas`, not below `wanted`, at which the ReplicaSet can remove only removable pods.

    Replicas without a pod go first: the ReplicaSet has not created those pods. Pods beyond `replicas` are already being
    removed, so they count among the removable ones.
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
    """Return the latest position in the removal order that the pod may have: the watch lags behind the cluster.

    A pod that had not started may be running. It cannot be Ready: that would have changed its Deployment's status, and
    the API server would reject the scale-down (409).
    """
    if not member.never_started:
        return removal_order(member)
    return (True, _PHASE_RANK["Running"], False, member.pod.deletion_cost or 0)


def choose_victims(serving: Iterable[Member], surplus: int) -> tuple[Member, ...]:
    """Return the workers to cordon: the least busy first, then those without a poll, then the longest idle.

    A busy worker can be chosen, too. An open poll keeps its worker for up to a minute. Pods without a report are left
    out: one that never started needs no cordon, and others cannot get the directive.
    """
    candidates = [member for member in serving if member.report is not None]
    candidates.sort(key=_leaving_order)
    return tuple(candidates[: max(0, surplus)])


def _leaving_order(member: Member) -> tuple[int, bool, float, float, str]:
    polls = member.report is not None and member.report.open_polls > 0
    return (member.busy, polls, -member.idle_for, member.pod.created, member.pod.uid)


def due_costs(members: Iterable[Member]) -> tuple[tuple[Member, int], ...]:
    """Return the workers whose deletion cost differs from what their last report demands, with the cost due.

    A drained worker is the first to go, also one that reported drained while it was being uncordoned: drained is
    terminal. A cordoned worker that restarted in place after it had drained is only cordoned again.
    """
    due = ((member, _due_cost(member)) for member in members if member.report is not None)
    return tuple((member, cost) for member, cost in due if cost is not None and cost != member.pod.deletion_cost)


def _due_cost(member: Member) -> int | None:
    terminal = member.report is not None and member.report.state is WorkerState.DRAINED
    if terminal or (member.drained and member.cordoned):
        return DRAINED_COST
    return CORDON_COST if member.cordoned else None


def callable_back(members: Iterable[Member], number: int) -> tuple[Member, ...]:
    """Return at most `number` cordoned workers that can serve again because they are not drained, busiest first."""
    candidates = [m for m in members if m.cordoned and not m.drained and not m.stalled and m.report is not None]
    candidates.sort(key=lambda member: (-member.busy, member.pod.created, member.pod.uid))
    return tuple(candidates[: max(0, number)])
