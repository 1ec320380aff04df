"""TasksFailing: at least half of the recent tasks failed; it ends when tasks succeed again, and not before."""

from dataclasses import replace

from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, EmitEvent, ScalingMemory
from activity_operator.core.status import pool_status
from activity_operator.core.task_counts import TaskCounts
from activity_operator.core.task_window import TaskPeriod, TaskWindow, period_start
from tests.unit.activity_operator.core.builders import NOW, POOL, busy, observed, pool

SENTENCE = "at least half of the tasks of the last 10 min failed, the last one as ValueError"


def tasks(succeeded: int, failed: int, now: float = NOW) -> TaskWindow:
    counts = TaskCounts(received=9, succeeded=succeeded, failed=failed, last_error="ValueError" if failed else "")
    return (TaskPeriod(period_start(now), "r1", counts),)


def judged(succeeded: int, failed: int, before: str = "") -> Decision:
    seen = observed(busy("w1"), tasks=tasks(succeeded, failed))
    return decide(pool(), seen, ScalingMemory(tasks_failing=before))


def test_half_of_the_tasks_failing_is_said_with_the_errors_name() -> None:
    assert judged(3, 3).memory.tasks_failing == SENTENCE
    assert judged(4, 3).memory.tasks_failing == ""


def test_few_tasks_are_no_evidence() -> None:
    assert judged(0, 4).memory.tasks_failing == ""
    assert judged(1, 0, before=SENTENCE).memory.tasks_failing == SENTENCE


def test_condition_stays_until_three_quarters_of_the_tasks_succeed() -> None:
    assert judged(7, 3, before=SENTENCE).memory.tasks_failing == SENTENCE
    assert judged(8, 2, before=SENTENCE).memory.tasks_failing == ""


def test_condition_and_event_name_the_error_and_no_number() -> None:
    seen = observed(busy("w1"), tasks=tasks(2, 8))
    decision = decide(pool(), seen, ScalingMemory())
    status = pool_status(pool(), seen, decision, None, ())

    failing = [one for one in status["conditions"] if one["type"] == "TasksFailing"]
    assert [(one["status"], one["reason"], one["message"]) for one in failing] == [("True", "TasksFailing", SENTENCE)]
    events = [one for one in decision.actions if isinstance(one, EmitEvent) and one.reason == "TasksFailing"]
    assert events == [EmitEvent("Warning", "TasksFailing", SENTENCE)]
    again = decide(pool(), seen, decision.memory)
    assert not [one for one in again.actions if isinstance(one, EmitEvent) and one.reason == "TasksFailing"]


def test_new_leader_keeps_the_condition_of_a_pool_at_rest() -> None:
    resting = observed(pool=replace(POOL, tasks_failing=SENTENCE))
    decision = decide(pool(), resting, ScalingMemory())

    assert decision.memory.tasks_failing == SENTENCE
    assert decision.look_again_in is None, "a pool at rest needs no further decision"


def test_pool_at_work_is_judged_each_minute_and_for_a_minute_after_it() -> None:
    """A report of a worker that stays busy starts no decision of its own."""
    seen = observed(busy("w1", interval_seconds=1000.0), tasks=tasks(1, 0))
    wait = decide(pool(), seen, ScalingMemory()).look_again_in

    assert wait is not None
    assert wait <= period_start(NOW) + 60 - NOW


def test_pool_without_failures_has_no_condition() -> None:
    seen = observed(busy("w1"), tasks=tasks(9, 0))
    status = pool_status(pool(), seen, decide(pool(), seen, ScalingMemory()), None, ())

    assert "TasksFailing" not in {one["type"] for one in status["conditions"]}
