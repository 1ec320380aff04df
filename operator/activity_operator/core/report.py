"""From a decision to the status: conditions by kstatus rules, counts, and the ring of decisions."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from activity_operator.api.conditions import Condition, ConditionType, Reason, Status, merge
from activity_operator.api.spec import PoolSpec
from activity_operator.api.status import MAX_DECISIONS, DecisionRecord, EventRecord, PoolStatus, parse_status
from activity_operator.core import notices
from activity_operator.core.decision import Decision
from activity_operator.core.faults import faults
from activity_operator.core.fleet import Fleet, fleet
from activity_operator.core.manifests import revision_of, selector
from activity_operator.core.observation import Observation

#: Faults that pass only when a person acts.
_NEEDS_A_PERSON = {
    Reason.ACTIVITY_NOT_FOUND,
    Reason.ACCESS_DENIED,
    Reason.SECRET_NOT_FOUND,
    Reason.SECRET_FORBIDDEN,
    Reason.SECRET_UNUSABLE,
    Reason.TLS_FAILED,
    Reason.QUERY_FAILED,
    Reason.POD_TEMPLATE_REJECTED,
    Reason.TENANCY_DENIED,
    Reason.INVALID_SPEC,
}

Verdict = tuple[Status, str, str]


def status(
    spec: PoolSpec,
    seen: Observation,
    decision: Decision,
    previous: Mapping[str, Any] | None,
    events: Sequence[EventRecord],
) -> dict[str, Any]:
    """Return the whole status, built on the previous one."""
    before = parse_status(previous)
    crew = fleet(spec, seen)
    now = datetime.fromtimestamp(int(seen.now), UTC)
    ring = _ring(seen, crew, decision, before, now)
    scaled = ring is not before.decisions
    busy = _busy(crew, before)
    revision = revision_of(spec)
    return PoolStatus(
        observed_generation=seen.pool.generation,
        conditions=merge(before.conditions, _conditions(spec, seen, crew, decision, busy), now),
        replicas=len(crew.members),
        ready_replicas=sum(1 for member in crew.members if member.pod.ready),
        desired_replicas=decision.size.desired,
        busy_workers=busy,
        backlog=decision.waiting.tasks,
        selector=selector(seen.pool),
        last_scale_time=now if scaled else before.last_scale_time,
        last_scale_reason=decision.size.reason if scaled else before.last_scale_reason,
        proven_revision=revision if revision in decision.memory.proven else before.proven_revision,
        decisions=ring,
        events=tuple(events),
    ).as_dict()


def _busy(crew: Fleet, before: PoolStatus) -> int:
    """Count the workers with a task. Of whom a new leader has yet to hear, as many as before may have one."""
    known = sum(1 for member in crew.members if member.busy)
    unheard = sum(1 for member in crew.members if member.unheard)
    return max(known, min(before.busy_workers, known + unheard))


def _ring(
    seen: Observation, crew: Fleet, decision: Decision, before: PoolStatus, now: datetime
) -> tuple[DecisionRecord, ...]:
    """Return the decisions, with this one when it changed the size or chose victims; else the very same tuple."""
    last = before.decisions[-1].desired if before.decisions else 0
    if decision.size.desired == last and not decision.victims:
        return before.decisions
    record = DecisionRecord(
        at=now,
        backlog=decision.waiting.tasks,
        inflight=crew.running_tasks,
        held=seen.source.held + seen.source.claimed,
        workers=len(crew.members),
        desired=decision.size.desired,
        limit=decision.size.limit,
        reason=decision.size.reason,
        victims=decision.victims,
    )
    return (*before.decisions, record)[-MAX_DECISIONS:]


def _conditions(spec: PoolSpec, seen: Observation, crew: Fleet, decision: Decision, busy: int) -> Iterator[Condition]:
    fault = next(faults(spec, seen, crew, decision.memory.breaker), None)
    verdict = _state(spec, seen, decision) if fault is None else ("False", fault.reason, fault.message)
    said: dict[ConditionType, Verdict] = {ConditionType.READY: verdict}
    if any(m.pod.revision != revision_of(spec) for m in crew.members) and decision.size.desired:
        said[ConditionType.RECONCILING] = ("True", Reason.ROLLING_OUT, "workers of an older revision still serve")
    if verdict[0] == "False" and verdict[1] in _NEEDS_A_PERSON:
        said[ConditionType.STALLED] = ("True", verdict[1], verdict[2])
    said[ConditionType.ACTIVE] = _active(seen, decision, busy)
    said[ConditionType.SCALING_LIMITED] = _limited(seen, decision)
    said[ConditionType.PAUSED] = (
        ("True", Reason.PAUSED, decision.size.reason) if spec.paused else ("False", Reason.NOT_PAUSED, "")
    )
    said[ConditionType.PINNED] = (
        ("True", Reason.REPLICAS_SET, f"spec.replicas is {spec.replicas}")
        if spec.replicas is not None
        else ("False", Reason.REPLICAS_UNSET, "")
    )
    said[ConditionType.SIGNALS_STALE] = _stale(seen, crew, decision)
    for kind, (value, reason, message) in said.items():
        yield Condition(kind, value, reason, message, seen.pool.generation)


def _state(spec: PoolSpec, seen: Observation, decision: Decision) -> Verdict:
    """Return how a pool without a fault is."""
    if spec.paused:
        return "True", Reason.PAUSED, decision.size.reason
    if not seen.deployments:
        return "Unknown", Reason.PENDING, "the first Deployment is being made"
    if decision.size.desired == 0:
        return "True", Reason.SCALED_TO_ZERO, "no work; the pool starts when a task arrives"
    return "True", Reason.POOL_READY, "the pool can do its work"


def _active(seen: Observation, decision: Decision, busy: int) -> Verdict:
    if busy or seen.source.held or seen.source.claimed or decision.waiting.tasks:
        return "True", Reason.TASKS_PRESENT, "tasks run or wait"
    return "False", Reason.NO_TASKS, "no task is known"


def _limited(seen: Observation, decision: Decision) -> Verdict:
    if seen.contested:
        return "True", Reason.DEPLOYMENT_CONTESTED, seen.contested
    reasons = {
        "max": Reason.AT_MAX_WORKERS,
        "min": Reason.AT_MIN_WORKERS,
        "breaker": Reason.START_BREAKER_OPEN,
        "unprepared": Reason.WORKERS_NOT_READY,
        "doubt": Reason.REPORTS_MISSING,
        **notices.FUTILE,
    }
    reason = reasons.get(decision.size.limit)
    if reason is None:
        return "False", Reason.WITHIN_LIMITS, ""
    return "True", reason, decision.size.reason


def _stale(seen: Observation, crew: Fleet, decision: Decision) -> Verdict:
    if seen.suspect and crew.members:
        return "True", Reason.REPORTS_MISSING, seen.suspect
    if crew.stalled:
        names = ", ".join(sorted(member.pod.name for member in crew.stalled)[:5])
        return "True", Reason.REPORTS_MISSING, f"no report from {names}: their tasks count as running"
    had = seen.source.counts is not None or seen.source.signals
    if decision.waiting.unknown and decision.waiting.tasks is None and had:
        return "True", Reason.BACKLOG_UNKNOWN, f"{decision.waiting.unknown}: unknown is not zero"
    return "False", Reason.SIGNALS_FRESH, ""
