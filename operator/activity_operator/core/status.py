"""From a decision to the status: conditions by kstatus rules, counts, and the ring of decisions."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from activity_operator.api.conditions import Condition, ConditionType, Reason, Status, merge
from activity_operator.api.spec import PoolSpec
from activity_operator.api.status import (
    MAX_DECISIONS,
    DecisionRecord,
    EventRecord,
    PoolStatus,
    ScheduleStatus,
    parse_status,
)
from activity_operator.core import events
from activity_operator.core.decision import Decision, GateState, Limit
from activity_operator.core.failing_workers import failing_workers
from activity_operator.core.fleet import Fleet
from activity_operator.core.manifests import selector
from activity_operator.core.not_ready import not_ready_reasons, served_without_polls
from activity_operator.core.observation import Observation
from activity_operator.core.situation import Situation, situation_of
from activity_operator.core.task_summary import runtimes, task_summary

#: Reasons that persist until a person acts.
_NEEDS_A_PERSON = {
    Reason.ACTIVITY_NOT_FOUND,
    Reason.DOMAIN_NOT_FOUND,
    Reason.ACCESS_DENIED,
    Reason.WRONG_ACCOUNT,
    Reason.WRONG_REGION,
    Reason.SECRET_NOT_FOUND,
    Reason.SECRET_FORBIDDEN,
    Reason.SECRET_UNUSABLE,
    Reason.TLS_FAILED,
    Reason.QUERY_FAILED,
    Reason.POD_TEMPLATE_REJECTED,
    Reason.TENANCY_DENIED,
    Reason.INVALID_SPEC,
}

ConditionState = tuple[Status, str, str]


def pool_status(
    spec: PoolSpec,
    observation: Observation,
    decision: Decision,
    previous: Mapping[str, Any] | None,
    lifecycle_events: Sequence[EventRecord],
) -> dict[str, Any]:
    """Return the whole status; `previous` is the last one, None for a new pool."""
    before = parse_status(previous)
    situation = decision.situation or situation_of(spec, observation)
    fleet, revision = situation.fleet, situation.revision
    now = datetime.fromtimestamp(int(observation.now), UTC)
    ring = _ring(situation, decision, before, now)
    scaled = ring is not before.decisions
    busy = _busy(fleet, before.busy_workers)
    return PoolStatus(
        observed_generation=observation.pool.generation,
        conditions=merge(before.conditions, _conditions(situation, decision, busy, before), now),
        replicas=len(fleet.members),
        ready_replicas=sum(1 for member in fleet.members if member.pod.ready),
        desired_replicas=decision.size.desired,
        recommended_replicas=None if decision.recommended is None else decision.recommended.desired,
        schedule=_schedule(situation),
        busy_workers=busy,
        backlog=decision.backlog.tasks,
        waiting=_waiting(observation, decision),
        oldest_waiting_since=_oldest_waiting_since(observation),
        selector=selector(observation.pool),
        last_scale_time=now if scaled else before.last_scale_time,
        last_scale_reason=ring[-1].reason if scaled else before.last_scale_reason,
        proven_revision=revision if revision in decision.memory.proven else before.proven_revision,
        stopped_revision=decision.memory.stopped_revision,
        decisions=ring,
        events=tuple(lifecycle_events),
        workers=failing_workers(situation, before, now),
        tasks=task_summary(situation, before.tasks, now),
        runtimes=runtimes(situation, before.runtimes),
    ).as_dict()


def urgent_part(
    spec: PoolSpec, observation: Observation, decision: Decision, previous: Mapping[str, Any] | None
) -> tuple[object, ...]:
    """Return what of the status must not wait: the generation, each condition without its message, and the size.

    Two statuses with the same part differ in counts, messages and events only. The part costs much less than a status.
    """
    situation = decision.situation or situation_of(spec, observation)
    busy = _busy(situation.fleet, int((previous or {}).get("busyWorkers") or 0))
    states = tuple((kind, *state[:2]) for kind, state in _states(situation, decision, busy).items())
    recommended = None if decision.recommended is None else decision.recommended.desired
    return (observation.pool.generation, decision.size.desired, recommended, *states)


def _waiting(observation: Observation, decision: Decision) -> str:
    """Return how many tasks wait, for people; a held task waits as well, for a worker that the pool starts."""
    backlog, held = decision.backlog, observation.source.held
    if backlog.tasks is not None and backlog.exact:
        return str(backlog.tasks + held)
    known = max(backlog.tasks or 0, held)
    return f"≥ {known}" if known else ""


def _oldest_waiting_since(observation: Observation) -> datetime | None:
    """Return since when the first task waits, as a time: an age would change the status while nothing changes."""
    times = [one.oldest_since for one in observation.source.counts if one.oldest_since is not None]
    return datetime.fromtimestamp(int(min(times)), UTC) if times else None


def _schedule(situation: Situation) -> ScheduleStatus | None:
    """Return which schedule applies and when that changes; None for a pool without schedules."""
    schedule = situation.schedule
    if not situation.spec.scaling.schedules:
        return None
    changes_at = None if schedule.changes_at is None else datetime.fromtimestamp(schedule.changes_at, UTC)
    return ScheduleStatus(active=schedule.name, next_change=changes_at)


def _busy(fleet: Fleet, before: int) -> int:
    """Return the number of workers with a task. Pods without a report count as busy, up to the previous number."""
    known = sum(1 for member in fleet.members if member.busy)
    unheard = sum(1 for member in fleet.members if member.unheard)
    return max(known, min(before, known + unheard))


def _ring(situation: Situation, decision: Decision, before: PoolStatus, now: datetime) -> tuple[DecisionRecord, ...]:
    """Return the decisions plus this one if it changed the size or chose victims, else the same tuple object."""
    observation, fleet = situation.observation, situation.fleet
    last = before.decisions[-1].desired if before.decisions else 0
    size, reason = decision.size, decision.size.reason
    if decision.recommended is not None and size.limit is Limit.RECOMMEND:
        size, reason = decision.recommended, f"recommended: {decision.recommended.reason}"
    if size.desired == last and not decision.victims:
        return before.decisions
    record = DecisionRecord(
        at=now,
        backlog=decision.backlog.tasks,
        inflight=fleet.running_tasks,
        held=observation.source.held + observation.source.claimed,
        workers=len(fleet.members),
        desired=size.desired,
        limit=str(size.limit),
        reason=reason,
        victims=decision.victims,
    )
    return (*before.decisions, record)[-MAX_DECISIONS:]


def _conditions(situation: Situation, decision: Decision, busy: int, before: PoolStatus) -> Iterator[Condition]:
    states = _states(situation, decision, busy)
    if events.reports_missing_in_new_term(situation.observation):
        states |= _former(before)
    if _rests_at_minimum(situation, decision):
        states |= _former(before, Reason.AT_MIN_WORKERS)
    for kind, (value, reason, message) in states.items():
        yield Condition(kind, value, reason, message, situation.observation.pool.generation)


def _states(situation: Situation, decision: Decision, busy: int) -> dict[ConditionType, ConditionState]:
    spec, observation = situation.spec, situation.observation
    fault = next(not_ready_reasons(situation, decision.memory.breaker), None)
    ready = _ready(situation, decision) if fault is None else ("False", fault.reason, fault.message)
    conditions: dict[ConditionType, ConditionState] = {ConditionType.READY: ready}
    if any(m.pod.revision != situation.revision for m in situation.fleet.members) and decision.size.desired:
        conditions |= _rolling_out(decision)
    if ready[0] == "False" and ready[1] in _NEEDS_A_PERSON:
        conditions[ConditionType.STALLED] = ("True", ready[1], ready[2])
    conditions[ConditionType.ACTIVE] = _active(observation, decision, busy)
    conditions[ConditionType.SCALING_LIMITED] = _scaling_limited(observation, decision)
    conditions[ConditionType.PAUSED] = (
        ("True", Reason.PAUSED, decision.size.reason) if spec.paused else ("False", Reason.NOT_PAUSED, "")
    )
    conditions[ConditionType.PINNED] = (
        ("True", Reason.REPLICAS_SET, f"spec.replicas is {spec.replicas}")
        if spec.replicas is not None
        else ("False", Reason.REPLICAS_UNSET, "")
    )
    conditions[ConditionType.SIGNALS_STALE] = _signals_stale(situation, decision)
    if decision.memory.tasks_failing:
        conditions[ConditionType.TASKS_FAILING] = ("True", Reason.TASKS_FAILING, decision.memory.tasks_failing)
    return conditions


def _rolling_out(decision: Decision) -> dict[ConditionType, ConditionState]:
    """Return the condition of a rollout: under way, or stopped until a person sets another image."""
    if decision.gate.state is GateState.STOPPED:
        return {ConditionType.STALLED: ("True", Reason.ROLLOUT_STOPPED, decision.gate.reason)}
    text = decision.gate.reason or "workers of an older revision still serve"
    return {ConditionType.RECONCILING: ("True", Reason.ROLLING_OUT, text)}


def _ready(situation: Situation, decision: Decision) -> ConditionState:
    """Return the Ready condition of a pool without a fault."""
    if situation.spec.paused:
        return "True", Reason.PAUSED, decision.size.reason
    if not situation.observation.deployments and decision.size.limit is Limit.RECOMMEND:
        text = "scaling.mode Recommend makes no Deployment: set replicas, or mode Auto, to have workers"
        return "Unknown", Reason.PENDING, text
    if not situation.observation.deployments:
        return "Unknown", Reason.PENDING, "the first Deployment is being made"
    if decision.size.desired == 0:
        return "True", Reason.SCALED_TO_ZERO, "no work; the pool starts when a task arrives"
    if (refused := served_without_polls(situation)) is not None:
        return "True", Reason.POOL_READY, events.without_polls(refused)
    return "True", Reason.POOL_READY, "the pool can do its work"


def _active(observation: Observation, decision: Decision, busy: int) -> ConditionState:
    if busy or observation.source.held or observation.source.claimed or decision.backlog.tasks:
        return "True", Reason.TASKS_PRESENT, "tasks run or wait"
    return "False", Reason.NO_TASKS, "no task is known"


def _scaling_limited(observation: Observation, decision: Decision) -> ConditionState:
    if observation.edit_conflict:
        return "True", Reason.DEPLOYMENT_CONTESTED, observation.edit_conflict
    reasons = {
        Limit.MAX: Reason.AT_MAX_WORKERS,
        Limit.MIN: Reason.AT_MIN_WORKERS,
        Limit.BREAKER: Reason.START_BREAKER_OPEN,
        Limit.UNPREPARED: Reason.WORKERS_NOT_READY,
        Limit.DOUBT: Reason.REPORTS_MISSING,
        Limit.LEASES: Reason.LEASE_LIMIT_REACHED,
        Limit.SCHEDULE: Reason.SCHEDULE_APPLIES,
        Limit.FREEZE: Reason.FROZEN,
        Limit.RECOMMEND: Reason.RECOMMENDED_ONLY,
        Limit.ACTIVATION: Reason.BELOW_ACTIVATION_THRESHOLD,
        **events.GROWTH_STOP_REASONS,
    }
    reason = reasons.get(decision.size.limit)
    if reason is None:
        return "False", Reason.WITHIN_LIMITS, ""
    return "True", reason, decision.size.reason


def _former(before: PoolStatus, reason: Reason = Reason.REPORTS_MISSING) -> dict[ConditionType, ConditionState]:
    """Return the conditions with this reason that the former leader wrote, by default those about missing reports.

    Each change of leader interrupts all reports. A young term neither raises these conditions nor ends them: that would
    be two writes for each pool and change of leader.
    """
    return {
        found.type: (found.status, found.reason, found.message) for found in before.conditions if found.reason == reason
    }


def _rests_at_minimum(situation: Situation, decision: Decision) -> bool:
    """Whether a new leader keeps minWorkers, at first for workers that have not reported, and then for its window."""
    spec, observation = situation.spec, situation.observation
    window = spec.scaling.scale_down.stabilization_window_seconds or 0
    young = observation.now - observation.leader_since < 2 * window
    return young and decision.size.desired == spec.min_workers and decision.size.limit in {Limit.DEMAND, Limit.HELD}


def _signals_stale(situation: Situation, decision: Decision) -> ConditionState:
    observation, fleet = situation.observation, situation.fleet
    missing = observation.report_path_problem and not events.reports_missing_in_new_term(observation)
    if missing and fleet.members:
        return "True", Reason.REPORTS_MISSING, observation.report_path_problem
    if fleet.stalled:
        excused = [observation.excused_workers[member.pod.uid] for member in fleet.stalled if member.excused]
        if excused:
            return "True", Reason.REPORTS_MISSING, min(excused)
        names = ", ".join(sorted(member.pod.name for member in fleet.stalled)[:5])
        return "True", Reason.REPORTS_MISSING, f"no report from {names}: their tasks count as running"
    had = observation.source.metrics is not None or observation.source.counts
    if decision.backlog.unknown and decision.backlog.tasks is None and had:
        return "True", Reason.BACKLOG_UNKNOWN, f"{decision.backlog.unknown}: unknown is not zero"
    return "False", Reason.SIGNALS_FRESH, ""
