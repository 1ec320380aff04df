"""Workers for the tasks that will have come when a pod that is started now is ready."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, ScalingMemory
from activity_operator.core.estimates import NO_ESTIMATES, Estimates
from activity_operator.core.observation import SourceFacts, WorkerFacts
from activity_operator.core.size_history import NO_SIZES, SizeHistory
from tests.unit.activity_operator.core.builders import NOW, busy, counted, observed, pool, worker

#: Tasks of 30 s, pods that start in 3 s, and 16 tasks that have run at a time for a minute.
STEADY = Estimates(at=NOW, start_seconds=3.0, busy_seconds=3000.0, ended=100.0, fast=16.0, short=16.0, long=16.0)
#: The same tasks, of which none has run lately.
RISING = Estimates(at=NOW, start_seconds=3.0, busy_seconds=3000.0, ended=100.0)
GROWING = SizeHistory(((NOW - 0.5, 12),), NOW - 0.5, (NOW - 4.0, NOW - 2.0, NOW - 0.5))


def decided(
    running: int,
    known: Estimates,
    sizes: SizeHistory = NO_SIZES,
    *,
    waiting: int = 0,
    idle: int = 0,
    silent: Sequence[WorkerFacts] = (),
    scaling: dict[str, Any] | None = None,
    **spec: Any,
) -> Decision:
    """Return the decision about a pool of Redis with these workers at work, tasks that wait, and idle workers."""
    crew: list[WorkerFacts] = [busy(f"w{number}") for number in range(running)]
    crew += [*(worker(f"i{number}") for number in range(idle)), *silent]
    redis = {"redis": {"address": "redis:6379", "flow": "f", "queue": "q"}}
    options = {"scaleDown": {}} if scaling is None else scaling
    whole = pool(**{"activityArn": None, "source": redis, "maxWorkers": 200, "scaling": options, **spec})
    return decide(
        whole, observed(*crew, source=SourceFacts(counts=counted(waiting))), ScalingMemory(estimates=known, sizes=sizes)
    )


def size(*facts: Any, **more: Any) -> int:
    return decided(*facts, **more).size.desired


def test_steady_load_has_workers_for_what_changes_while_a_pod_starts() -> None:
    """Of 16 tasks of 30 s, 3 change in 3 s: a load of 16 needs 19 workers then, and one of 22 needs 24."""
    grown = decided(16, STEADY, idle=1)

    assert grown.size.desired == 19
    assert (grown.size.limit, grown.size.reason.split("; ")[-1]) == (
        "demand",
        "3 more for tasks that come while a pod starts",
    )
    assert size(22, STEADY) == 24


def test_slower_pods_need_more_workers_ahead() -> None:
    """A task without a slot waits for a start: with pods of 30 s the pool keeps 1.8 standard deviations, not 1.3."""
    slow = replace(STEADY, start_seconds=30.0)

    assert size(16, slow) == 23
    assert size(16, replace(slow, start_seconds=60.0)) == 24
    assert size(16, replace(slow, start_seconds=300.0)) == 24


def test_short_tasks_need_no_more_workers_for_slower_pods() -> None:
    short = replace(STEADY, busy_seconds=50.0, start_seconds=30.0)

    assert size(16, short) == 22


def test_short_tasks_among_long_ones_change_within_a_start() -> None:
    """Tasks of 25 s on average come and go; those that run are 170 s old on average."""
    mixed = replace(STEADY, busy_seconds=2500.0, mean_age=170.0)

    assert size(16, mixed) == 18
    assert size(16, replace(mixed, busy_seconds=17000.0)) == 17


def test_slots_of_a_worker_share_what_is_kept_ahead() -> None:
    assert size(16, NO_ESTIMATES, slotsPerWorker=4) == 4
    assert size(16, STEADY, slotsPerWorker=4) == 5


@pytest.mark.parametrize("known", [NO_ESTIMATES, RISING, Estimates(short=2.0, long=2.0, start_seconds=3.0)])
def test_small_or_new_load_gets_a_worker_for_each_task(known: Estimates) -> None:
    assert size(2, known, waiting=1) == 3
    assert size(0, known, waiting=40) == 40


def test_burst_that_comes_at_once_gets_a_worker_for_each_task() -> None:
    at_once = NO_SIZES.followed_by(0, NOW - 9.0).followed_by(20, NOW - 0.7).followed_by(36, NOW - 0.3)

    assert size(0, RISING, at_once, waiting=40) == 40


def test_pool_that_keeps_growing_starts_some_workers_more() -> None:
    """The tasks come one after the other: by the time that a pod has started, more have come."""
    assert size(9, RISING, GROWING, waiting=7) == 16 + 5
    assert size(1, RISING, GROWING, waiting=1) == 2


def test_pool_of_slow_pods_starts_more_while_it_keeps_growing() -> None:
    """Three of the 7 tasks wait for busy slots, so 13 slots are needed; 4 and 5 square roots of them come on top."""
    slow = replace(RISING, start_seconds=22.5)
    growing = replace(GROWING, raises=(NOW - 30.0, NOW - 15.0, NOW - 0.5))

    assert size(9, slow, growing, waiting=7) == 13 + 14
    assert size(9, replace(slow, start_seconds=300.0), growing, waiting=7) == 13 + 18


def test_usual_swings_are_no_growth() -> None:
    assert size(24, STEADY, GROWING) == size(24, STEADY)


def test_short_tasks_that_share_a_slot_need_no_worker_more() -> None:
    short = Estimates(at=NOW, start_seconds=3.0, busy_seconds=50.0, ended=100.0)

    assert size(9, short, GROWING, waiting=40) == size(9, short, replace(GROWING, raises=()), waiting=40)


@pytest.mark.parametrize(
    "scaling",
    [{"scaleDown": {"stabilizationWindowSeconds": 15}}, {"scaleDown": {}, "targetWaitSeconds": 0}],
    ids=["window", "target wait"],
)
def test_times_of_the_user_leave_growth_to_the_tasks(scaling: dict[str, Any]) -> None:
    assert size(16, STEADY, scaling=scaling) == 16
    assert size(9, RISING, GROWING, waiting=7, scaling=scaling) == 16


def test_stalled_workers_are_no_growth() -> None:
    """Four workers have been silent for long: their places come on top, and once."""
    silent = [busy(f"s{number}", reported_at=NOW - 900.0) for number in range(4)]

    assert size(9, RISING, GROWING, silent=silent, waiting=7) == 16 + 5 + 4
    assert decided(9, RISING, GROWING, silent=silent, waiting=7).size.reason.count("5 more") == 1


def test_max_workers_bounds_growth_ahead() -> None:
    assert size(16, STEADY, maxWorkers=17) == 17


def test_raises_count_for_two_starts_and_at_least_a_second_apart() -> None:
    sizes, now = NO_SIZES.followed_by(0, NOW), NOW
    for number in range(1, 4):
        now += 0.5
        sizes = sizes.followed_by(number, now)
    fast = sizes.keeps_growing(now, None)
    for number in range(4, 6):
        now += 1.0
        sizes = sizes.followed_by(number, now)

    assert (fast, sizes.keeps_growing(now, 3.0), sizes.keeps_growing(now + 9.0, 3.0)) == (False, True, False)
    assert (sizes.keeps_growing(now + 50.0, 30.0), sizes.keeps_growing(now + 59.0, 100.0)) == (True, False)


@pytest.mark.parametrize(("utilization", "workers"), [(1.0, 21), (0.8, 27), (0.5, 42), (0.25, 84)])
def test_target_utilization_counts_once_while_a_pool_grows(utilization: float, workers: int) -> None:
    scaling = {"scaleDown": {}, "targetUtilization": utilization}

    assert size(9, RISING, GROWING, waiting=7, scaling=scaling) == workers


def test_raise_below_a_size_of_the_last_two_starts_is_no_growth() -> None:
    """A burst that comes again grows to its old size in steps."""
    history = NO_SIZES
    for second, workers in enumerate((0, 30, 30, 3, 12, 20, 28)):
        history = history.followed_by(workers, NOW + second, 10.0)

    assert history.raises == (NOW + 1,)
    assert history.followed_by(31, NOW + 10, 10.0).raises == (NOW + 1, NOW + 10)
    assert history.followed_by(29, NOW + 30, 10.0).raises == (NOW + 1, NOW + 30)
