"""The models of other autoscalers against small cases that are computed by hand."""

import random
from itertools import pairwise

import pytest

from activity_operator.simulate.oracle import oracle_worker_seconds
from activity_operator.simulate.peers import Bounds, CpuAutoscaler, Keda, KedaTuned, KnativePodAutoscaler, PeerPool
from activity_operator.simulate.tasks import Task
from activity_operator.simulate.timeline import Timeline
from activity_operator.simulate.traces import Trace, TraceTask

#: Longer than any test.
NEVER = 1e9


def pool_of(kind: type[PeerPool], *, least: int = 0, most: int = 100, start_seconds: float = 1.0) -> PeerPool:
    pool = kind(Timeline(), random.Random(1), Bounds(least, most, 1, start_seconds))
    pool.begin()
    return pool


def arrive(pool: PeerPool, number: int, seconds: float = NEVER) -> None:
    for _ in range(number):
        pool.arrive(Task(pool.timeline.now, seconds))


def sizes(pool: PeerPool) -> list[int]:
    return [size for _, size in pool.costs.sizes]


def test_keda_starts_one_worker_and_doubles_every_15_seconds() -> None:
    pool = pool_of(Keda, start_seconds=NEVER)
    arrive(pool, 100)

    pool.timeline.run_until(200)

    assert sizes(pool) == [0, 1, 5, 10, 20, 40, 80, 100]
    at = [time for time, _ in pool.costs.sizes]
    assert at[1] <= 30
    assert at[2] - at[1] <= 15
    assert [round(after - before) for before, after in pairwise(at[2:])] == [15] * 5


def test_tuned_keda_reaches_any_size_at_one_sync() -> None:
    pool = pool_of(KedaTuned, start_seconds=NEVER)
    arrive(pool, 100)

    pool.timeline.run_until(20)

    assert sizes(pool) == [0, 1, 100]
    assert pool.costs.sizes[-1][0] <= 16


@pytest.mark.parametrize(("kind", "cooldown"), [(Keda, 300.0), (KedaTuned, 30.0)])
def test_keda_goes_to_zero_after_its_cooldown(kind: type[Keda], cooldown: float) -> None:
    pool = pool_of(kind)
    arrive(pool, 1, seconds=1.0)

    pool.timeline.run_until(1000)

    started, stopped = pool.costs.sizes[1][0], pool.costs.sizes[-1][0]
    assert sizes(pool) == [0, 1, 0]
    assert cooldown <= stopped - started <= cooldown + 2 * kind.polling_seconds


def test_keda_counts_a_running_task_of_a_removed_worker_as_interrupted() -> None:
    pool = pool_of(KedaTuned)
    arrive(pool, 1, seconds=500.0)

    pool.timeline.run_until(1000)

    assert (pool.costs.interrupted, pool.costs.killed, pool.done) == (1, 1, 1)
    assert not pool.workers


def test_keda_keeps_the_size_while_the_queue_is_within_ten_percent() -> None:
    pool = pool_of(Keda, least=20, start_seconds=NEVER)
    arrive(pool, 21)

    pool.timeline.run_until(100)

    assert sizes(pool) == [20]


def test_knative_starts_at_once_and_leaves_30_percent_spare() -> None:
    pool = pool_of(KnativePodAutoscaler)
    pool.timeline.run_until(100)
    arrive(pool, 40)

    assert sizes(pool) == [0, 1]
    pool.timeline.run_until(112)
    assert pool.wanted == 58  # 40 / 0.7, rounded up


def test_knative_halves_at_most_and_goes_to_zero_after_both_windows() -> None:
    pool = pool_of(KnativePodAutoscaler)
    arrive(pool, 40, seconds=10.0)

    pool.timeline.run_until(300)

    peak = sizes(pool).index(max(sizes(pool)))
    falling = sizes(pool)[peak:]
    assert all(after >= before // 2 for before, after in pairwise(falling))
    assert pool.wanted == 0
    assert pool.costs.sizes[-1][0] >= 10 + 60 + 30


def test_cpu_autoscaler_fills_workers_to_70_percent_and_keeps_one() -> None:
    pool = pool_of(CpuAutoscaler, least=7)
    arrive(pool, 7, seconds=400.0)

    pool.timeline.run_until(300)
    assert sizes(pool) == [7, 10]

    idle = pool_of(CpuAutoscaler)
    idle.timeline.run_until(600)
    assert sizes(idle) == [1]


def test_peers_run_each_task_once_and_lose_none() -> None:
    for kind in (Keda, KedaTuned, KnativePodAutoscaler, CpuAutoscaler):
        pool = pool_of(kind, most=20)
        tasks = [Task(0.0, 5.0 + number) for number in range(60)]
        for task in tasks:
            pool.arrive(task)
        pool.timeline.run_until(3000)
        assert pool.done == 60
        for task in tasks:
            assert task.started is not None
            assert task.ended == pytest.approx(task.started + task.seconds)


@pytest.mark.parametrize(
    ("second", "slots", "expected"),
    [
        (12.0, 1, (3 + 10 + 2 + 10, 1)),  # two idle seconds are cheaper than a start
        (20.0, 1, (2 * (3 + 10), 2)),
        (5.0, 1, (2 * (3 + 10), 2)),
        (12.0, 2, (25 / 2, 1)),
    ],
)
def test_oracle_keeps_a_slot_only_where_a_start_costs_more(
    second: float, slots: int, expected: tuple[float, int]
) -> None:
    trace = Trace("t", 60.0, (TraceTask(0.0, 10.0), TraceTask(second, 10.0)))

    assert oracle_worker_seconds(trace, slots, start_seconds=3.0) == expected
