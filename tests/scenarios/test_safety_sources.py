"""A source that fails or reports wrong counts: it holds capacity, interrupts no worker, and respects maxWorkers."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activity_worker.contract import PollFault, PollTrouble
from tests.unit.activity_operator.core.examples import examples
from tests.unit.activity_operator.core.load import KINDS, Load, load_of

#: Longer than a window, a stale count and zeroAfterSeconds together.
A_WHILE = 500.0
WINDOW_SECONDS = 60
HUGE = 10**12
NOT_REACHED = PollTrouble(PollFault.UNREACHABLE, "EndpointConnectionError", "")
COUNTED = ("counted", "with running")


def ten_at_work(kind: str, **changes: object) -> Load:
    """Return the load of a pool with at least ten workers, ten of them busy for some more seconds."""
    load = load_of(kind, **changes)
    load.seconds = 60.0
    load.arrive(10)
    # CloudWatch shows tasks minutes late, and then all of them at once.
    for _ in range(300):
        load.run(1)
        if len(load.harness.busy()) == 10:
            return load
    raise AssertionError("ten tasks never ran at once")


def break_source(load: Load) -> None:
    """Make the source unreachable: its tasks cannot be counted, and no worker can poll."""
    load.lies = lambda _count, _now: None
    load.harness.truth.trouble = NOT_REACHED


def mend_source(load: Load) -> None:
    """Make the source reachable again."""
    load.lies = lambda count, _: count
    load.harness.truth.trouble = None


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_unreachable_source_holds_the_size_and_one_window_longer(kind: str) -> None:
    load = ten_at_work(kind)
    break_source(load)
    load.sizes.clear()
    load.run(A_WHILE)
    assert min(load.sizes) >= 10, "unknown is not zero"

    mend_source(load)
    load.run(WINDOW_SECONDS - 5)
    assert min(load.sizes) >= 10, "the window begins when the source is reachable again"
    load.run_until_idle(900, 0)
    assert (load.left, len(load.harness.pods), load.harness.truth.taken) == (0, 0, [])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_flapping_source_performs_like_a_steady_one(kind: str) -> None:
    steady, flapping = load_of(kind), load_of(kind)
    flapping.lies = lambda count, now: count if int(now) % 7 < 3 else None
    for load in (steady, flapping):
        load.seconds = 30.0
        load.run(300, lambda at: int(at % 3 == 0))

    assert flapping.reversals() <= steady.reversals() + 1
    assert flapping.left <= steady.left + 20
    assert flapping.harness.truth.taken == []


@pytest.mark.parametrize("kind", COUNTED)
def test_false_zero_count_removes_no_busy_worker(kind: str) -> None:
    load = load_of(kind)
    load.seconds = 20.0
    load.run(60, lambda _: 1)
    assert load.sizes[-1] == 20
    load.sizes.clear()
    load.lies = lambda _count, _now: 0
    load.run(300, lambda _: 1)

    assert min(load.sizes) == 20, "the pool shrank on a false count"
    assert load.harness.truth.taken == []


@pytest.mark.parametrize("kind", ["cloudwatch", "counted", "prometheus", "with running"])
def test_huge_count_grows_the_pool_to_max_workers_only(kind: str) -> None:
    load = load_of(kind)
    load.lies = lambda _count, _now: HUGE
    load.run(300, lambda at: int(at % 30 == 0))

    assert max(load.sizes) <= 20
    assert max(load.replicas) <= 20
    assert load.harness.truth.made <= 20, "pods were made again and again for nothing"
    assert load.harness.truth.taken == []


@examples(6)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    answers=st.lists(st.sampled_from(["error", "zero", "truth", "half", "huge"]), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    every=st.sampled_from([1, 5, 40, 100]),
    seconds=st.sampled_from([2.0, 30.0]),
)
def test_any_counts_interrupt_no_worker_and_cause_few_reversals(
    kind: str, answers: list[str], seed: int, every: int, seconds: float
) -> None:
    load = load_of(kind)
    load.seconds = seconds

    def reported_count(count: int, now: float) -> int | None:
        answer = random.Random(seed + int(now) // every).choice(answers)
        return {"error": None, "zero": 0, "truth": count, "half": count // 2, "huge": HUGE}[answer]

    load.lies = reported_count
    load.run(600, lambda at: 5 if at % 50 == 0 and at < 400 else 0)

    assert load.harness.truth.taken == []
    assert max(load.sizes, default=0) <= 20
    assert load.reversals() <= 2 * 600 / WINDOW_SECONDS
    mend_source(load)
    load.run_until_idle(900, 0)
    assert load.left == 0
