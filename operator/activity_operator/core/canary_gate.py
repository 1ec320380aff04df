"""`rollout.maxFailureShare`: a new revision whose tasks fail more than those of the old one is stopped."""

from collections.abc import Iterator

from activity_operator.core.decision import EmitEvent, Gate, GateState
from activity_operator.core.failing_tasks import recent_counts
from activity_operator.core.fleet import Member
from activity_operator.core.situation import Situation
from activity_operator.core.task_counts import TaskCounts, counts_without

OPEN = Gate()


def gate_of(situation: Situation, stopped_revision: str) -> Gate:
    """Return the gate. `stopped_revision` is the revision that was stopped last: it stays so until the spec changes."""
    rollout = situation.spec.rollout
    if rollout.max_failure_share is None or not _old_serves(situation):
        return OPEN
    if situation.revision == stopped_revision or _fails_more(situation, rollout.max_failure_share):
        kept = 0 if rollout.on_failure == "Rollback" else 1
        what = "no worker of it stays" if not kept else "one worker of it stays"
        return Gate(
            GateState.STOPPED,
            f"revision {situation.revision} fails more tasks than the old one and than rollout.maxFailureShare "
            f"{rollout.max_failure_share:g} allows: {what}, the old revision serves; set another handlerImage",
            kept,
        )
    if recent_counts(situation, situation.revision).concluded >= rollout.canary_tasks:
        return OPEN
    if (until := _judged_until(situation)) is None or until > situation.observation.now:
        reason = f"the new revision is judged by its first {rollout.canary_tasks} tasks, for at most "
        return Gate(GateState.JUDGING, f"{reason}{rollout.canary_seconds} s", max(len(_new_workers(situation)), 1))
    return OPEN


def canary_workers(situation: Situation, gate: Gate) -> frozenset[str]:
    """Return the workers that the gate judges, by pod UID: they must poll, or the old workers take all tasks."""
    if gate.state is not GateState.JUDGING:
        return frozenset()
    return frozenset(member.pod.uid for member in _new_workers(situation))


def stop_event(situation: Situation, gate: Gate, stopped_revision: str) -> Iterator[EmitEvent]:
    """Yield the Event of a rollout that has just been stopped, with the name of the last error."""
    if gate.state is GateState.STOPPED and situation.revision != stopped_revision:
        name = recent_counts(situation, situation.revision).last_error or "an error without a name"
        yield EmitEvent("Warning", "RolloutStopped", f"{gate.reason}. The last task failed as {name}")


def changes_at(situation: Situation) -> float | None:
    """Return the Unix time at which time alone opens the gate, None if it does not."""
    if situation.spec.rollout.max_failure_share is None or not _old_serves(situation):
        return None
    return _judged_until(situation)


def _new_workers(situation: Situation) -> list[Member]:
    return [member for member in situation.fleet.serving if member.pod.revision == situation.revision]


def _fails_more(situation: Situation, allowed: float) -> bool:
    new = recent_counts(situation, situation.revision)
    old: TaskCounts = counts_without(recent_counts(situation), new)
    enough = new.concluded >= situation.spec.rollout.canary_tasks
    return enough and new.failure_share > max(allowed, old.failure_share)


def _judged_until(situation: Situation) -> float | None:
    """Return when the canary's time is over, None before it works. A new leader knows no tasks of an earlier term."""
    working = [m.pod.running_since for m in situation.fleet.working if m.pod.revision == situation.revision]
    if not working:
        return None
    return max(min(working), situation.observation.leader_since) + situation.spec.rollout.canary_seconds


def _old_serves(situation: Situation) -> bool:
    return any(
        member.pod.revision != situation.revision and not member.never_started for member in situation.fleet.serving
    )
