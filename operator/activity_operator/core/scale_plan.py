"""From wanted workers to actions on one revision: uncordon, cordon, raise or lower replicas."""

from dataclasses import dataclass, replace

from activity_operator.core import drain
from activity_operator.core.decision import Action, SetDeletionCost, SetReplicas
from activity_operator.core.fleet import CORDON_COST, Member
from activity_operator.core.observation import DeploymentFacts


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """What to do with one revision: its Deployment's `replicas`, deletion costs to write, and workers to cordon."""

    replicas: int
    costs: tuple[SetDeletionCost, ...]
    victims: tuple[Member, ...]


def plan_scale(members: tuple[Member, ...], replicas: int, wanted: int, room: int) -> ScalePlan:
    """Return the plan for `wanted` serving workers.

    `room` is how many pods the pool may still add. Replicas without a pod count as serving: the ReplicaSet is about to
    create those pods.
    """
    serving = [member for member in members if member.serving]
    missing = max(0, replicas - len(members))
    lacking = wanted - len(serving) - missing
    plan = (
        _plan_growth(members, replicas, lacking, room)
        if lacking > 0
        else _plan_shrink(members, replicas, wanted, -lacking, missing)
    )
    corrected = (SetDeletionCost(m.pod.name, m.pod.uid, cost) for m, cost in drain.due_costs(members))
    # The plan's own costs come last: it may uncordon a worker.
    return replace(plan, costs=(*corrected, *plan.costs))


def _plan_shrink(members: tuple[Member, ...], replicas: int, wanted: int, surplus: int, missing: int) -> ScalePlan:
    serving = [member for member in members if member.serving]
    started = sum(1 for member in serving if not member.never_started)
    spare = missing + len(serving) - started
    # Pods beyond `replicas` are already being removed; do not choose extra victims for them.
    chosen = drain.choose_victims(serving, surplus - spare - max(0, len(members) - replicas))
    costs = tuple(SetDeletionCost(m.pod.name, m.pod.uid, CORDON_COST) for m in chosen)
    # A ReplicaSet removes starting pods before drained ones. While a starting pod is needed, the drained ones stay.
    needed = spare > 0 and wanted > started - len(chosen)
    staying = sum(1 for m in members if not m.serving and (needed or not drain.removable(m)))
    # Deletion costs are written before replicas, so a chosen worker already ranks as a cordoned one.
    lowest = drain.lowest_replicas(_marked(members, chosen), replicas, wanted + staying + len(chosen))
    return ScalePlan(min(replicas, lowest), costs, chosen)


def _marked(members: tuple[Member, ...], chosen: tuple[Member, ...]) -> list[Member]:
    """Return the members with our deletion cost on the chosen ones."""
    leaving = {member.pod.uid for member in chosen}
    return [
        replace(member, pod=replace(member.pod, deletion_cost=CORDON_COST)) if member.pod.uid in leaving else member
        for member in members
    ]


def _plan_growth(members: tuple[Member, ...], replicas: int, lacking: int, room: int) -> ScalePlan:
    back = drain.callable_back(members, lacking)
    costs = tuple(SetDeletionCost(member.pod.name, member.pod.uid, None) for member in back)
    growth = min(lacking - len(back), max(0, room))
    if growth <= 0 < lacking - len(back):
        # At the limit, drained pods make room for new ones. The ReplicaSet would remove starting pods first, and pods
        # that the watch has not shown yet. So wait until they run: otherwise each decision creates and removes them.
        if replicas > len(members) or any(member.serving and member.never_started for member in members):
            return ScalePlan(replicas, costs, ())
        gone = sum(1 for member in members if drain.removable(member) and not member.serving)
        return ScalePlan(drain.lowest_replicas(members, replicas, replicas - gone), costs, ())
    return ScalePlan(replicas + growth, costs, ())


def replicas_write(deployment: DeploymentFacts, replicas: int) -> tuple[Action, ...]:
    """Return the write of `replicas`, () if they do not change. A scale-down carries the observed resource version."""
    if replicas == deployment.replicas:
        return ()
    lowering = replicas < deployment.replicas
    return (SetReplicas(deployment.name, replicas, deployment.resource_version if lowering else None),)
