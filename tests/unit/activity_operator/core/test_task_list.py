"""Pools on a task list of Amazon SWF: counts that are seconds old, truncated counts, and the pace of the next count."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.core.backlog import known_backlog
from activity_operator.core.count_pace import count_pace
from activity_operator.core.decide import decide
from activity_operator.core.decision import CountPace, Limit, ScalingMemory, Size
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import BacklogCount, Observation, SourceFacts, SourceProblem
from activity_operator.core.situation import situation_of
from tests.unit.activity_operator.core.builders import NOW, busy, observed, pending, worker

TASK_LIST = {"domain": "shop", "taskList": "invoices"}


def listed(**more: Any) -> PoolSpec:
    """Return the spec of a pool on a task list, maxWorkers 10."""
    raw = {"source": {"swf": TASK_LIST}, "aws": {"region": "eu-west-1"}, "handlerImage": "i", "maxWorkers": 10, **more}
    return PoolSpec.model_validate(raw)


def source(tasks: int | None, age: float = 5.0, stale: float = 120.0, **more: Any) -> SourceFacts:
    """Return what the operator knows after a count of `tasks`, made `age` seconds ago."""
    if tasks is None:
        return SourceFacts(**more)
    truncated = more.pop("truncated", False)
    count = BacklogCount(tasks, True, NOW - age, stale_seconds=stale, truncated=truncated)
    return SourceFacts(counts=(count,), **more)


def backlog(observation: Observation) -> tuple[int | None, bool, str]:
    """Return the backlog's tasks, whether they are all, and why they are unknown."""
    found = known_backlog(situation_of(listed(), observation), 0.0)
    return found.tasks, found.exact, found.unknown


def test_count_of_a_list_at_zero_starts_a_worker_for_each_task() -> None:
    decision = decide(listed(), observed(source=source(4)), ScalingMemory())

    assert (decision.size.desired, decision.size.reason) == (4, "0 running, 0 held, 4 waiting")
    assert (decision.sentinel.polls, decision.sentinel.counts, decision.sentinel.preflight) == (0, True, True)


def test_count_stays_fresh_for_as_long_as_its_reader_says() -> None:
    assert backlog(observed(source=source(4, age=100.0))) == (4, True, "")
    assert backlog(observed(source=source(4, age=120.0)))[0::2] == (
        None,
        "the backlog was last read 120 s ago or earlier",
    )


def test_truncated_count_is_a_lower_bound_of_at_least_one_task() -> None:
    assert backlog(observed(source=source(500, truncated=True))) == (500, False, "")
    assert backlog(observed(source=source(0, truncated=True))) == (1, False, "")


def test_free_slot_that_polled_since_the_count_ends_its_backlog() -> None:
    idle = worker("w1", open_polls=1, idle_seconds=30.0)

    assert backlog(observed(idle, busy("w2"), source=source(8, age=5.0)))[0] == 1


def test_free_slot_starts_no_worker_and_keeps_the_pool_from_zero() -> None:
    decision = decide(listed(), observed(worker("w1"), source=source(8, age=5.0)), ScalingMemory())

    assert decision.size.desired == 1


def test_free_slot_of_a_report_before_the_count_does_not() -> None:
    idle = worker("w1", idle_seconds=30.0, reported_at=NOW - 9)

    assert backlog(observed(idle, source=source(8, age=5.0)))[0] == 8


def test_tasks_that_were_running_at_the_count_do_not_shrink_it() -> None:
    old = [busy(f"w{number}", running_seconds=30.0) for number in range(2)]

    assert backlog(observed(*old, source=source(8, age=5.0)))[0] == 8


def test_tasks_taken_since_the_count_are_not_counted_twice() -> None:
    new = [busy(f"w{number}", running_seconds=2.0) for number in range(5)]
    decision = decide(listed(), observed(*new, source=source(8, age=5.0)), ScalingMemory())

    assert (decision.backlog.tasks, decision.size.desired) == (3, 8)


def test_truncated_count_stays_one_task_when_more_were_taken() -> None:
    new = [busy(f"w{number}", running_seconds=0.0) for number in range(5)]

    assert backlog(observed(*new, source=source(3, truncated=True)))[0] == 1


def test_unread_list_keeps_the_pool_and_says_so() -> None:
    denied = SourceProblem("AccessDenied", "allow swf:CountPendingActivityTasks", NOW - 5)
    decision = decide(listed(), observed(busy("w1"), busy("w2"), source=source(None, error=denied)), ScalingMemory())

    assert decision.size.desired >= 2
    assert decision.backlog.unknown == "the backlog cannot be read now"


def test_throttled_counts_keep_a_pool_at_its_size_after_they_are_stale() -> None:
    slow = SourceProblem("Throttled", "ask for a higher quota", NOW - 200)
    facts = source(0, age=150.0, error=slow)
    idle = [worker(f"w{number}", idle_seconds=400.0) for number in range(3)]
    decision = decide(listed(), observed(*idle, source=facts), ScalingMemory())

    assert decision.size.desired >= 1
    assert decision.backlog.unknown == "the backlog was last read 120 s ago or earlier"


POLLED = {"source": {"swf": {**TASK_LIST, "pollAtZero": True}}}


def test_task_list_is_polled_at_zero_only_if_its_pool_asks_for_it() -> None:
    proven = ScalingMemory(proven=frozenset({revision_of(listed())}))
    asked = decide(listed(**POLLED), observed(source=source(0)), proven).sentinel
    usual = decide(listed(), observed(source=source(0)), proven).sentinel

    assert (asked.polls, asked.counts, asked.pace) == (2, True, CountPace.SLOW)
    assert (usual.polls, usual.counts, usual.pace) == (0, True, CountPace.STEADY)


def test_task_list_is_not_polled_beside_workers() -> None:
    order = decide(listed(**POLLED), observed(busy("w1"), busy("w2"), source=source(0)), ScalingMemory()).sentinel

    assert (order.polls, order.counts, order.pace) == (0, True, CountPace.FAST)


def test_leases_of_the_operator_are_not_counted_twice() -> None:
    facts = source(3, age=10.0, held=2)
    decision = decide(listed(**POLLED), observed(source=facts), ScalingMemory())

    assert (decision.backlog.tasks, decision.size.desired) == (1, 3)


def test_polls_at_zero_change_no_pod() -> None:
    assert revision_of(listed(**POLLED)) == revision_of(listed())


SIZE = Size(2, Limit.DEMAND, "")


@pytest.mark.parametrize(
    ("observation", "size", "pace"),
    [
        (observed(), SIZE, CountPace.STEADY),
        (observed(pending("n1")), SIZE, CountPace.FAST),
        (observed(busy("w1")), SIZE, CountPace.FAST),
        (observed(busy("w1"), worker("w2")), SIZE, CountPace.SLOW),
        (observed(busy("w1")), replace(SIZE, limit=Limit.MAX), CountPace.SLOW),
        (observed(busy("w1")), replace(SIZE, limit=Limit.PIN), CountPace.SLOW),
    ],
    ids=["zero", "starting", "busy", "free-slot", "at-max", "pinned"],
)
def test_pace_is_what_the_next_count_can_change(observation: Observation, size: Size, pace: CountPace) -> None:
    assert count_pace(situation_of(listed(), observation), size) is pace


def test_activation_none_asks_for_the_domain_and_counts_nothing() -> None:
    spec = listed(activation={"mode": "None"}, minWorkers=1)
    order = decide(spec, observed(source=source(None)), ScalingMemory()).sentinel

    assert (order.counts, order.polls, order.preflight) == (False, 0, True)


def test_paused_pool_is_not_counted() -> None:
    order = decide(listed(paused=True), observed(source=source(None)), ScalingMemory()).sentinel

    assert (order.counts, order.preflight) == (False, False)
