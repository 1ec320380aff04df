"""Hours of a counted pool in virtual time: no task is lost, and no worker is interrupted by a wrong count."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.activity_operator.core.examples import examples
from tests.unit.activity_operator.core.load import Load
from tests.unit.activity_operator.core.pool_harness import PoolHarness, pool_spec

#: Seconds of a simulated run.
A_WHILE = 1200.0
WINDOW_SECONDS = 60


def counted(**changes: object) -> Load:
    """Return work for a pool on a queue, at most 20 workers, with the default windows."""
    redis = {"redis": {"address": "redis:6379", "flow": "f", "queue": "q"}}
    return Load(PoolHarness(pool_spec(activityArn=None, source=redis, maxWorkers=20, **changes)))


def test_burst_at_zero_gets_its_size_at_once_and_pool_returns_to_zero() -> None:
    load = counted()
    load.arrive(15)
    load.run(1)
    assert load.sizes[0] == 15

    load.run_until_idle(600, 0)
    assert (load.left, load.harness.pods, load.harness.truth.taken) == (0, {}, [])


def test_trickle_of_tasks_needs_at_most_two_workers() -> None:
    load = counted()
    load.run(900, lambda at: int(at % 10 == 0))

    assert load.left <= 2
    assert max(load.sizes) <= 2


@pytest.mark.parametrize("period", [10, 30, 55])
def test_backlog_that_swings_within_the_window_causes_no_reversal(period: int) -> None:
    load = counted()
    load.run(A_WHILE, lambda at: 12 if at % period == 0 else 0)

    assert load.reversals() == 0
    assert load.harness.truth.taken == []


@pytest.mark.parametrize("period", [90, 240])
def test_slow_swing_causes_at_most_two_reversals_a_window(period: int) -> None:
    load = counted()
    load.run(A_WHILE, lambda at: 12 if at % period == 0 else 0)

    assert load.reversals() <= 2 * A_WHILE / max(period, WINDOW_SECONDS)
    assert load.harness.truth.taken == []


def test_random_counts_lose_no_task_and_cause_few_reversals() -> None:
    generator = random.Random(7)
    load = counted()
    load.lies = lambda count, _: generator.choice((0, count, 100_000))
    load.run(A_WHILE, lambda at: int(at % 20 == 0))

    assert load.harness.truth.taken == []
    assert load.reversals() <= 2 * A_WHILE / WINDOW_SECONDS
    assert load.left <= 3


def test_silent_source_keeps_a_worker_until_counts_return() -> None:
    load = counted()
    load.seconds = 60
    load.run(120, lambda at: int(at < 10))
    load.lies = lambda _count, _now: None
    load.run(A_WHILE)
    assert len(load.harness.serving()) >= 1, "unknown is not zero"

    load.lies = lambda count, _: count
    load.run(600)
    assert (load.left, len(load.harness.pods)) == (0, 0)


@examples(12)
@given(
    bursts=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 40)), min_size=1, max_size=6),
    seconds=st.sampled_from([0.5, 3.0, 20.0, 70.0]),
    slots=st.integers(1, 4),
    least=st.integers(0, 3),
)
def test_any_load_is_done_without_interrupting_a_worker(
    bursts: list[tuple[int, int]], seconds: float, slots: int, least: int
) -> None:
    load = counted(slotsPerWorker=slots, minWorkers=least)
    load.seconds = seconds
    planned = dict(bursts)
    load.run(201, lambda at: planned.get(int(at), 0) if at == int(at) else 0)
    load.run_until_idle(200 * seconds + 900, least)

    assert load.left == 0
    assert load.harness.truth.taken == []
    assert max(load.sizes) <= 20
    assert len(load.harness.serving()) == least
