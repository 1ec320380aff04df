"""A reserve of idle workers and a floor by throughput raise the demand, and the reason names the option."""

from typing import Any

import pytest

from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, ScalingMemory
from activity_operator.core.observation import SourceFacts
from activity_operator.core.task_counts import TaskCounts
from activity_operator.core.task_window import TaskPeriod, TaskWindow
from tests.unit.activity_operator.core.builders import NOW, busy, counted, observed, pool, window, worker
from tests.unit.activity_operator.core.pool_harness import PoolHarness, pool_spec

REDIS: dict[str, Any] = {
    "activityArn": None,
    "source": {"redis": {"address": "redis:6379", "flow": "f", "queue": "q"}},
    "maxWorkers": 20,
}
#: The last whole minute before `NOW`.
MINUTE = NOW // 60 * 60 - 60


def decided(tasks: int, *facts: Any, scaling: dict[str, Any], seen: TaskWindow = (), **spec: Any) -> Decision:
    observation = observed(*facts, source=SourceFacts(counts=counted(tasks)), tasks=seen)
    return decide(pool(**{**REDIS, **spec}, scaling=scaling), observation, ScalingMemory())


def minutes(number: int, received: int, busy_seconds: float) -> TaskWindow:
    """Return the last whole minutes, each with these numbers."""
    counts = TaskCounts(received=received, succeeded=received, busy_seconds=busy_seconds)
    return tuple(TaskPeriod(MINUTE - 60 * back, "r1", counts) for back in reversed(range(number)))


def test_idle_workers_come_on_top_of_those_that_the_tasks_need() -> None:
    size = decided(4, busy("w1"), busy("w2"), scaling={"idleWorkers": 3}).size

    assert (size.desired, size.limit) == (4 + 2 + 3, "reserve")
    assert size.reason.endswith("scaling.idleWorkers keeps 3 more")


def test_reserve_counts_workers_and_not_slots() -> None:
    assert decided(9, scaling={"idleWorkers": 2}, slotsPerWorker=4).size.desired == 3 + 2


def test_reserve_stays_when_there_is_no_task() -> None:
    harness = PoolHarness(pool_spec(**REDIS, scaling={"idleWorkers": 2, **window(0, 0)}))
    assert harness.run(1200).size.desired == 2
    assert len(harness.serving()) == 2


def test_free_slot_that_notices_tasks_is_a_part_of_the_reserve() -> None:
    """Where the operator may not poll, one slot stays free while tasks run; a reserve of one asks for nothing more."""
    seen = observed(busy("w1"), busy("w2"), worker("w3"))
    unpolled = {"minWorkers": 1, "activation": {"mode": "None"}}

    assert decide(pool(**unpolled), seen, ScalingMemory()).size.desired == 3
    size = decide(pool(scaling={"idleWorkers": 1}, **unpolled), seen, ScalingMemory()).size
    assert (size.desired, size.limit) == (3, "demand")


def test_max_workers_bounds_the_reserve() -> None:
    size = decided(19, scaling={"idleWorkers": 5}).size

    assert (size.desired, size.limit) == (20, "max")


def test_throughput_keeps_the_workers_that_the_rate_of_tasks_needs() -> None:
    """Two tasks a second of 3 s each keep six slots busy, also at a moment without any task."""
    decision = decided(0, scaling={"throughput": {}}, seen=minutes(5, received=120, busy_seconds=360.0))

    assert (decision.size.desired, decision.size.limit) == (6, "throughput")
    assert decision.size.reason.endswith("2 tasks a second keep 6 slots busy")


def test_seconds_per_task_replace_the_measured_ones() -> None:
    option = {"throughput": {"secondsPerTask": 4}}

    assert decided(0, scaling=option, seen=minutes(5, received=120, busy_seconds=1.0)).size.desired == 8


@pytest.mark.parametrize(("busy_share", "workers"), [(2.0, 2), (2.09, 2), (2.2, 3)])
def test_a_tenth_of_a_worker_is_not_worth_a_worker(busy_share: float, workers: int) -> None:
    seen = minutes(5, received=60, busy_seconds=60 * busy_share)

    assert decided(0, scaling={"throughput": {}}, seen=seen).size.desired == workers


def test_minutes_without_tasks_lower_the_rate_until_it_is_forgotten() -> None:
    """The window shows in the decision: it is due again at each minute, and the floor goes with the tasks."""
    spec = pool(**REDIS, scaling={"throughput": {"windowSeconds": 120}, **window(0)})
    sizes, memory, now = [], ScalingMemory(), NOW
    for _ in range(4):
        seen = observed(now=now, source=SourceFacts(counts=counted(0, now=now)), tasks=minutes(2, 60, 240.0))
        decision = decide(spec, seen, memory)
        sizes.append(decision.size.desired)
        assert decision.look_again_in == 60 - now % 60
        now, memory = now + 60 - now % 60, decision.memory

    assert sizes == [4, 2, 0, 0]


def test_a_new_leader_measures_only_whole_minutes_of_its_own_term() -> None:
    def size(since: float) -> int:
        seen = observed(leader_since=since, source=SourceFacts(counts=counted(0)), tasks=minutes(1, 60, 240.0))
        return decide(pool(**REDIS, scaling={"throughput": {}, **window(0)}), seen, ScalingMemory()).size.desired

    assert size(MINUTE - 30) == 4
    assert size(MINUTE + 30) == 0
