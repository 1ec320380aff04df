"""PURE: decides about one pool: takes one observation, which holds the time, and returns one decision."""

from collections.abc import Iterable
from dataclasses import replace

from activity_operator.api.spec import PoolSpec
from activity_operator.core import (
    backlog,
    blocked_pods,
    canary_gate,
    estimates,
    events,
    failing_polls,
    failing_tasks,
    growth_guard,
    limits,
    load_swings,
    manifests,
    not_ready,
    probing,
    recommendation,
    rollout,
    saturation,
    scale_in,
    scale_plan,
    sentinel_plan,
    stabilize,
    stand_by,
    throughput,
)
from activity_operator.core.breaker import GIVE_UP_SECONDS, next_decision_at, replicas_allowed, watch_starts
from activity_operator.core.decision import (
    Action,
    ApplyRevision,
    Breaker,
    Decision,
    DeleteDeployment,
    DeletePod,
    EmitEvent,
    GateState,
    Limit,
    ScalingMemory,
    Size,
)
from activity_operator.core.demand import Demand, task_demand
from activity_operator.core.demand_floors import raised
from activity_operator.core.fleet import IDLE_GRACE_SECONDS, Member, given_up_at, stalled_after
from activity_operator.core.observation import DeploymentFacts, Observation
from activity_operator.core.situation import Situation, situation_of
from activity_worker.contract import Directive

#: Seconds until the next decision while the report path is degraded: its recovery raises no event.
REPORT_PATH_RECHECK_SECONDS = 5.0


def decide(spec: PoolSpec, observation: Observation, memory: ScalingMemory) -> Decision:
    """Return what to do about one pool, and why."""
    situation = situation_of(spec, observation, memory.estimates.start_seconds, memory.load.returned_at)
    proven = _proven(situation, memory)
    breaker, failed = watch_starts(situation, memory.breaker)
    measured = estimates.estimated(situation, memory.estimates)
    demand = raised(situation, task_demand(situation, memory.saturation, memory.emptied_at, memory.estimates), memory)
    held = stabilize.stabilized(situation, demand, memory.recommendations, memory.quiet_since, memory.size)
    stable = scale_in.limited(situation, held, memory.estimates, memory.sizes.limited_to(memory.size))
    waiting_since = growth_guard.waiting_since(situation, demand, memory.waiting_since)
    growth_stop = growth_guard.growth_stop(situation, waiting_since)
    size = limits.limited_size(situation, demand, stable, breaker, growth_stop, memory.size)
    recommended = _recommended(situation, demand, stable, breaker, growth_stop, memory.size)
    writes_nothing = recommended is not None and recommendation.leaves_pods(situation)
    if writes_nothing and recommended is not None:
        size = recommendation.present_size(situation, recommended)
    stopped = memory.stopped_revision or observation.pool.stopped_revision
    gate = canary_gate.gate_of(situation, stopped)
    actions, victims = ((), ()) if writes_nothing else _actions(situation, size, proven, breaker, gate.workers)
    failing = failing_tasks.failing(situation, memory.tasks_failing)
    emitted, announced = events.new_events(situation, size, breaker, memory.announced, recommended, failing)
    cannot_poll, replaced = failing_polls.watched(situation, memory.failing_polls)
    deletions = () if writes_nothing else _deletions(situation, failed, replaced)
    leaving = frozenset(member.pod.uid for member in victims)
    standing_by = stand_by.standing_by(situation, demand.backlog, measured, leaving)
    standing_by -= canary_gate.canary_workers(situation, gate)
    after = ScalingMemory(
        stable.recommendations,
        stable.quiet_since,
        demand.saturation,
        proven,
        breaker,
        announced,
        demand.backlog.emptied_at,
        waiting_since,
        (recommended or size).desired,
        measured,
        failing,
        situation.revision if gate.state is GateState.STOPPED else "",
        memory.sizes.followed_by(
            min(stable.workers, situation.spec.max_workers), observation.now, measured.start_seconds
        ),
        cannot_poll,
        load_swings.watched(situation, demand.tasks, measured, memory.load),
    )
    order = sentinel_plan.plan_sentinel(situation, breaker, size, after, proven=_serving_revision(situation) in proven)
    after = replace(after, polls_ordered_at=stand_by.ordered_since(situation, order.polls, memory.polls_ordered_at))
    return Decision(
        size=size,
        memory=after,
        actions=(*emitted, *canary_gate.stop_event(situation, gate, stopped), *actions, *deletions),
        directives=_directives(situation, victims, standing_by),
        victims=tuple(member.pod.name for member in victims),
        sentinel=order,
        backlog=demand.backlog,
        look_again_in=_look_again(situation, demand, after, order.polls),
        recommended=recommended,
        gate=gate,
        situation=situation,
    )


def _recommended(
    situation: Situation,
    demand: Demand,
    stable: stabilize.Stable,
    breaker: Breaker,
    growth_stop: growth_guard.GrowthStop | None,
    last: int | None,
) -> Size | None:
    """Return the size that mode Recommend shows, without a pin; None in another mode."""
    if not recommendation.has_recommendation(situation):
        return None
    unpinned = replace(situation, spec=situation.spec.model_copy(update={"replicas": None}))
    return limits.limited_size(unpinned, demand, stable, breaker, growth_stop, last)


def _proven(situation: Situation, memory: ScalingMemory) -> frozenset[str]:
    """Return the proven revisions: a worker of each has reported, in this term or in an earlier one."""
    inherited = {situation.observation.pool.proven_revision} - {""}
    return memory.proven | inherited | {m.pod.revision for m in situation.fleet.members if m.report is not None}


def _serving_revision(situation: Situation) -> str:
    """Return the revision that would take a task now: the spec's own, or an old one if only the old one has workers."""
    revision = situation.revision
    serving = [member.pod.revision for member in situation.fleet.serving if member.report is not None]
    return revision if not serving or revision in serving else serving[0]


def _actions(
    situation: Situation, size: Size, proven: frozenset[str], breaker: Breaker, kept: int | None
) -> tuple[tuple[Action, ...], tuple[Member, ...]]:
    """Return the writes for every revision and the workers to cordon. Old revisions come first and make room.

    `kept` is the number of workers at which the gate keeps the new revision, None while the gate is open.
    """
    observation, fleet, revision = situation.observation, situation.fleet, situation.revision
    if observation.pool.deleting:
        return (), ()
    split = rollout.split_by_revision(situation, max(0, size.desired - len(fleet.stalled)), proven, kept)
    without_pod = sum(max(0, d.replicas - len(fleet.of(d.revision))) for d in observation.deployments)
    room = situation.spec.max_workers + split.surge - len(fleet.members) - without_pod
    actions: list[Action] = []
    victims: list[Member] = []
    known = {d.revision: d for d in observation.deployments if not d.deleting}
    for name in sorted(known.keys() | {revision}, key=lambda name: name == revision):
        deployment = known.get(name)
        members = fleet.of(name)
        replicas = deployment.replicas if deployment else 0
        plan = scale_plan.plan_scale(members, replicas, split.wanted.get(name, 0), room)
        room -= max(0, plan.replicas - replicas)
        actions.extend(plan.costs)
        victims.extend(plan.victims)
        if name == revision:
            cut = size.limit is Limit.BREAKER
            allowed = replicas_allowed(breaker, members, plan.replicas, cut=cut)
            # The start breaker tries again with one extra pod, which needs room as well.
            most = plan.replicas + max(0, room)
            actions.extend(_current_revision_write(observation, deployment, revision, min(allowed, most)))
        elif deployment is not None:
            actions.extend(_older_revision_write(observation, deployment, plan.replicas))
    return tuple(actions), tuple(victims)


def _current_revision_write(
    observation: Observation, deployment: DeploymentFacts | None, revision: str, replicas: int
) -> Iterable[Action]:
    """Return the write for the spec's own revision.

    The Deployment is applied if it is missing, edited, or of another generation. If it has pods of another rendering,
    its pod template stays, because Kubernetes would replace those pods at once, and interrupt their tasks. Without
    pods it is rendered again, at the latest at the next start from zero (ADR 26).
    """
    name = manifests.deployment_name(observation.pool, revision)
    if deployment is None:
        return (ApplyRevision(name, revision, replicas),)
    at_zero = _at_zero(observation, deployment)
    if (
        deployment.drifted
        or deployment.rendered_generation != observation.pool.generation
        or (deployment.outdated and replicas and at_zero)
    ):
        keeps = deployment.outdated and not at_zero
        version = deployment.resource_version
        return (ApplyRevision(name, revision, replicas, resource_version=version, keeps_template=keeps),)
    return scale_plan.replicas_write(deployment, replicas)


def _older_revision_write(observation: Observation, deployment: DeploymentFacts, replicas: int) -> Iterable[Action]:
    """Return the write for an older revision: lower replicas, or delete the Deployment once its last pod is gone."""
    if _at_zero(observation, deployment):
        return (DeleteDeployment(deployment.name, deployment.uid),)
    return scale_plan.replicas_write(deployment, replicas)


def _at_zero(observation: Observation, deployment: DeploymentFacts) -> bool:
    return deployment.replicas == 0 and not any(pod.revision == deployment.revision for pod in observation.pods)


def _deletions(situation: Situation, failed: Member | None, useless: Member | None) -> tuple[Action, ...]:
    """Return the deletions: a failed start, a worker that cannot poll, and those stalled and unready for too long."""
    observation = situation.observation
    actions: list[Action] = []
    if failed is not None:
        actions.append(DeletePod(failed.pod.name, failed.pod.uid))
    if useless is not None:
        text = failing_polls.reason_to_replace(useless)
        actions += [EmitEvent("Warning", "FailingWorkerDeleted", text), DeletePod(useless.pod.name, useless.pod.uid)]
    for member in situation.fleet.stalled if not observation.report_path_problem else ():
        if member.report is None or member.pod.ready or member.excused:
            continue
        silent = observation.now - member.report.reported_at
        if silent >= situation.spec.stalled.deadline_seconds:
            text = f"worker {member.pod.name} was silent for {silent:.0f} s and not ready; its pod is deleted"
            actions += [EmitEvent("Warning", "StalledWorkerDeleted", text), DeletePod(member.pod.name, member.pod.uid)]
    return tuple(actions)


def _directives(situation: Situation, victims: tuple[Member, ...], standing_by: frozenset[str]) -> dict[str, Directive]:
    """Return every worker's directive, by pod UID. `standing_by` are the workers that may not poll.

    SIGTERM already drains a worker whose pod is being deleted. It gets the directive as well: a signal that arrives
    before the container's first process handles signals is lost, and the worker would run until SIGKILL.
    """
    leaving = {member.pod.uid for member in victims}
    deleted = {pod.uid: Directive.DRAIN for pod in situation.observation.pods if pod.deleting}
    serving = dict.fromkeys(standing_by, Directive.STANDBY)
    return deleted | {
        uid: Directive.DRAIN if member.cordoned or uid in leaving else serving.get(uid, Directive.RUN)
        for member in situation.fleet.members
        for uid in (member.pod.uid,)
    }


def _look_again(situation: Situation, demand: Demand, memory: ScalingMemory, polls: int) -> float | None:
    """Return the seconds until time alone can change the decision, None if only an event can.

    `polls` is the number of polls that the decision orders.
    """
    spec, observation, fleet = situation.spec, situation.observation, situation.fleet
    window = spec.scaling.scale_down.stabilization_window_seconds or 0
    times = [
        stabilize.falls_at(situation, memory.recommendations),
        next_decision_at(situation, memory.breaker),
        backlog.stale_at(situation),
        throughput.changes_at(situation),
        canary_gate.changes_at(situation),
        situation.schedule.changes_at,
        *growth_guard.recheck_times(situation, memory.waiting_since),
        *not_ready.recheck_times(situation),
        *probing.recheck_times(situation, memory.saturation, memory.estimates),
        *failing_tasks.recheck_times(situation),
        *failing_polls.recheck_times(memory.failing_polls),
        *blocked_pods.recheck_times(situation),
        *stand_by.recheck_times(situation, memory.estimates),
        *stand_by.opened_at(situation, polls, memory.polls_ordered_at),
        *scale_in.recheck_times(situation, memory.estimates, memory.sizes),
    ]
    if memory.quiet_since is not None and fleet.serving:
        times.append(memory.quiet_since + (spec.scaling.scale_down.zero_after_seconds or 0))
    if fleet.serving and observation.now - observation.leader_since < window:
        times.append(observation.leader_since + window)
    if demand.saturation is not None and not probing.counts_by_polls(situation):
        times.append(saturation.look_again_at(demand.saturation, fleet, observation.now))
    counted = demand.backlog.exact and demand.backlog.tasks is not None
    may_grow = spec.replicas is None and (memory.size or 0) < spec.max_workers
    if demand.saturation is None and not counted and may_grow:
        times.append(saturation.unclear_until(fleet, observation.now))
    if (observation.report_path_problem and fleet.members) or any(member.excused for member in fleet.stalled):
        times.append(observation.now + REPORT_PATH_RECHECK_SECONDS)
    times += [_silent_at(situation, member) for member in fleet.members]
    times += [
        observation.now + IDLE_GRACE_SECONDS - m.idle_for for m in fleet.working if m.busy < m.slots and not m.idle
    ]
    # All comparisons are inclusive, so deadlines equal to `now` are already handled.
    return min((at - observation.now for at in times if at is not None and at > observation.now), default=None)


def _silent_at(situation: Situation, member: Member) -> float | None:
    """Return the Unix time at which this worker's silence next changes the decision, None if it never does."""
    spec, observation = situation.spec, situation.observation
    if member.report is not None:
        return (
            member.report.reported_at + spec.stalled.deadline_seconds
            if member.stalled
            else stalled_after(spec, member.report)
        )
    if (late := blocked_pods.blocked_at(member)) is not None:
        return late
    if member.pod.running_since and not member.pod.ready:
        gives_up_at = given_up_at(spec, observation, member.pod)
        if gives_up_at is None or observation.now < gives_up_at:
            return gives_up_at
        return max(member.pod.running_since, observation.leader_since) + GIVE_UP_SECONDS
    return None
