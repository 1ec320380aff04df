"""observe -> decide -> apply, the middle: one pool, one moment, one answer. No clock, no I/O, no logger."""

from collections.abc import Iterable

from activity_operator.api.spec import PoolSpec
from activity_operator.core import breaker as breakers
from activity_operator.core import (
    futility,
    limits,
    manifests,
    moves,
    notices,
    order,
    rollout,
    saturation,
    stabilize,
    waiting,
)
from activity_operator.core.decision import (
    Action,
    ApplyRevision,
    Breaker,
    Decision,
    DeleteDeployment,
    DeletePod,
    Say,
    ScalingMemory,
    Size,
)
from activity_operator.core.demand import Demand, demand
from activity_operator.core.fleet import IDLE_GRACE_SECONDS, Fleet, Member, fleet, given_up_at, stalled_after
from activity_operator.core.hindrance import late_at
from activity_operator.core.observation import DeploymentFacts, Observation
from activity_worker.contract import Directive

#: Seconds until another look at a pool whose workers' reports are doubted: no event tells when the doubt ends.
DOUBT_SECONDS = 5.0


def decide(spec: PoolSpec, seen: Observation, memory: ScalingMemory) -> Decision:
    """Return what to do about one pool, and why."""
    revision = manifests.revision_of(spec)
    crew = fleet(spec, seen)
    proven = _proven(seen, crew, memory)
    breaker, failed = breakers.watch_starts(seen, crew, revision, memory.breaker)
    want = demand(spec, seen, crew, memory.saturation, memory.emptied_at)
    stable = stabilize.stabilize(spec, seen, crew, want, memory.recommendations, memory.quiet_since)
    waiting_since = futility.waiting_since(seen, crew, want, memory.waiting_since)
    futile = futility.futility(seen, crew, waiting_since)
    size = limits.size(spec, seen, crew, want, stable, breaker, futile)
    actions, victims = _actions(spec, seen, crew, size, revision, proven, breaker)
    says, said = notices.notices(spec, seen, crew, size, breaker, memory.said)
    deletions = _deletions(spec, seen, crew, failed)
    after = ScalingMemory(
        stable.recommendations,
        stable.quiet_since,
        want.saturation,
        proven,
        breaker,
        said,
        want.waiting.emptied_at,
        waiting_since,
    )
    return Decision(
        size=size,
        memory=after,
        actions=(*says, *actions, *deletions),
        directives=_directives(seen, crew, victims),
        victims=tuple(member.pod.name for member in victims),
        sentinel=order.order(spec, seen, crew, breaker, proven=_serving_revision(crew, revision) in proven),
        waiting=want.waiting,
        look_again_in=_look_again(spec, seen, crew, want, after, revision),
    )


def _proven(seen: Observation, crew: Fleet, memory: ScalingMemory) -> frozenset[str]:
    inherited = {seen.pool.proven_revision} - {""}
    return memory.proven | inherited | {m.pod.revision for m in crew.members if m.said is not None}


def _serving_revision(crew: Fleet, revision: str) -> str:
    """Return the revision that would take a task now: an old one as long as it alone has workers."""
    serving = [member.pod.revision for member in crew.serving if member.said is not None]
    return revision if not serving or revision in serving else serving[0]


def _actions(
    spec: PoolSpec,
    seen: Observation,
    crew: Fleet,
    size: Size,
    revision: str,
    proven: frozenset[str],
    breaker: Breaker,
) -> tuple[tuple[Action, ...], tuple[Member, ...]]:
    """Return the writes for every revision, lowering ones first so that they make room."""
    if seen.pool.deleting:
        return (), ()
    share = rollout.split(seen, crew, max(0, size.desired - len(crew.stalled)), revision, proven)
    unseen = sum(max(0, d.replicas - len(crew.of(d.revision))) for d in seen.deployments)
    room = spec.max_workers + share.surge - len(crew.members) - unseen
    actions: list[Action] = []
    victims: list[Member] = []
    known = {d.revision: d for d in seen.deployments if not d.deleting}
    for name in sorted(known.keys() | {revision}, key=lambda name: name == revision):
        deployment = known.get(name)
        members = crew.of(name)
        replicas = deployment.replicas if deployment else 0
        planned = moves.moves(members, replicas, share.wanted.get(name, 0), room)
        room -= max(0, planned.replicas - replicas)
        actions.extend(planned.costs)
        victims.extend(planned.victims)
        if name == revision:
            cut = size.limit == "breaker"
            allowed = breakers.replicas_allowed(breaker, members, planned.replicas, cut=cut)
            # One more for a try, too, only where there is room.
            most = planned.replicas + max(0, room)
            actions.extend(_current(seen, deployment, revision, min(allowed, most)))
        elif deployment is not None:
            actions.extend(_former(seen, deployment, planned.replicas))
    return tuple(actions), tuple(victims)


def _current(seen: Observation, deployment: DeploymentFacts | None, revision: str, replicas: int) -> Iterable[Action]:
    """Return the write for the spec's own revision.

    It is rendered when it is missing, edited or of another generation. What another version of the operator rendered
    stays while it has pods, so that an upgrade rolls nobody; the write that starts the pool from zero renders it anew.
    """
    if deployment is None or (
        deployment.drifted
        or deployment.rendered_generation != seen.pool.generation
        or (deployment.outdated and replicas and _at_zero(seen, deployment))
    ):
        name = manifests.deployment_name(seen.pool, revision)
        version = "" if deployment is None else deployment.resource_version
        return (ApplyRevision(name, revision, replicas, {}, version),)
    return moves.write(deployment, replicas)


def _former(seen: Observation, deployment: DeploymentFacts, replicas: int) -> Iterable[Action]:
    """Return the write for an older revision: smaller, and gone when its last pod is."""
    if _at_zero(seen, deployment):
        return (DeleteDeployment(deployment.name, deployment.uid),)
    return moves.write(deployment, replicas)


def _at_zero(seen: Observation, deployment: DeploymentFacts) -> bool:
    return deployment.replicas == 0 and not any(pod.revision == deployment.revision for pod in seen.pods)


def _deletions(spec: PoolSpec, seen: Observation, crew: Fleet, failed: Member | None) -> tuple[Action, ...]:
    """Return pods to delete by UID: a failed start that is tried again, and workers long silent and unready."""
    actions: list[Action] = []
    if failed is not None:
        actions.append(DeletePod(failed.pod.name, failed.pod.uid))
    for member in crew.stalled if not seen.suspect else ():
        if member.said is None or member.pod.ready:
            continue
        silent = seen.now - member.said.reported_at
        if silent >= spec.stalled.deadline_seconds:
            text = f"worker {member.pod.name} was silent for {silent:.0f} s and not ready; its pod is deleted"
            actions += [Say("Warning", "StalledWorkerDeleted", text), DeletePod(member.pod.name, member.pod.uid)]
    return tuple(actions)


def _directives(seen: Observation, crew: Fleet, victims: tuple[Member, ...]) -> dict[str, Directive]:
    """Return what every worker is to do.

    One whose pod is being deleted drains by its SIGTERM. It is told all the same: a signal that comes before the
    container's first process can take it is lost, and the worker would go on until it is killed in its work.
    """
    leaving = {member.pod.uid for member in victims}
    deleted = {pod.uid: Directive.DRAIN for pod in seen.pods if pod.deleting}
    return deleted | {
        member.pod.uid: Directive.DRAIN if member.cordoned or member.pod.uid in leaving else Directive.RUN
        for member in crew.members
    }


def _look_again(
    spec: PoolSpec, seen: Observation, crew: Fleet, want: Demand, memory: ScalingMemory, revision: str
) -> float | None:
    """Return the seconds to the next moment at which time alone can change the answer."""
    window = spec.scaling.scale_down.stabilization_window_seconds
    times = [
        stabilize.expires(memory.recommendations, window),
        breakers.due_at(seen, crew, revision, memory.breaker),
        waiting.stale_at(spec, seen),
        *futility.due(seen, crew, memory.waiting_since),
    ]
    if memory.quiet_since is not None and crew.serving:
        times.append(memory.quiet_since + spec.scaling.scale_down.zero_after_seconds)
    if crew.serving and seen.now - seen.leader_since < window:
        times.append(seen.leader_since + window)
    if want.saturation is not None:
        times.append(saturation.look_again_at(want.saturation, crew, seen.now))
    if seen.suspect and crew.members:
        times.append(seen.now + DOUBT_SECONDS)
    times += [_silent_at(spec, seen, member) for member in crew.members]
    times += [seen.now + IDLE_GRACE_SECONDS - m.idle_for for m in crew.working if m.busy < m.slots and not m.idle]
    # What is due exactly now has been counted in: every comparison with a time includes it.
    return min((at - seen.now for at in times if at is not None and at > seen.now), default=None)


def _silent_at(spec: PoolSpec, seen: Observation, member: Member) -> float | None:
    """Return when this worker's silence next means more than it does now."""
    if member.said is not None:
        return (
            member.said.reported_at + spec.stalled.deadline_seconds
            if member.stalled
            else stalled_after(spec, member.said)
        )
    if (late := late_at(member)) is not None:
        return late
    if member.pod.running_since and not member.pod.ready:
        told = given_up_at(spec, seen, member.pod)
        if told is None or seen.now < told:
            return told
        return max(member.pod.running_since, seen.leader_since) + breakers.GIVE_UP_SECONDS
    return None
