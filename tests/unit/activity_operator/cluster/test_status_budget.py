"""One budget of status writes: a rate for all pools together, conditions before counts, loops left for scale-ups."""

import heapq
import itertools

from activity_operator.cluster.resources import Key
from activity_operator.cluster.status_budget import StatusBudget

RATE = 50.0
LOOPS = 8


def pool(number: int) -> Key:
    return ("ns", f"p{number}")


class WritingPools:
    """Pools that always have something to write; each asks again when the budget tells it to."""

    def __init__(self, rate: float = RATE) -> None:
        self.now = 0.0
        self.budget = StatusBudget(rate, LOOPS, lambda: self.now)
        self.asks = 0
        self.written: dict[Key, list[float]] = {}

    def write_counts(self, pools: int, seconds: float, every_seconds: float = 10.0) -> None:
        """Let all pools write counts whenever they may, `every_seconds` after their last write at the earliest."""
        due = [(self.now, pool(number)) for number in range(pools)]
        end = self.now + seconds
        while due and due[0][0] < end:
            self.now, key = heapq.heappop(due)
            self.asks += 1
            wait = self.budget.wait(key, urgent=False)
            if not wait:
                self.written.setdefault(key, []).append(self.now)
            heapq.heappush(due, (self.now + (wait or every_seconds), key))


def test_writes_of_all_pools_together_keep_to_the_rate() -> None:
    writing = WritingPools()
    writing.write_counts(5_000, 100.0)

    assert sum(map(len, writing.written.values())) <= RATE * 100 + RATE


def test_counts_of_few_pools_are_written_every_ten_seconds() -> None:
    writing = WritingPools()
    writing.write_counts(400, 60.0)

    assert {len(times) for times in writing.written.values()} == {6}


def test_counts_are_coarser_the_more_pools_are_at_work() -> None:
    """2,500 pools at 50 writes a second: each about every 50 s, and none is left out."""
    writing = WritingPools()
    writing.write_counts(2_500, 300.0)
    gaps = [later - earlier for times in writing.written.values() for earlier, later in itertools.pairwise(times)]

    assert len(writing.written) == 2_500
    assert 45 < sum(gaps) / len(gaps) < 56
    assert max(gaps) < 75


def test_pool_that_waits_asks_again_only_in_its_turn() -> None:
    """Each question costs a reconciliation."""
    writing = WritingPools()
    writing.write_counts(2_500, 300.0)

    assert writing.asks < 2.5 * sum(map(len, writing.written.values()))


def test_urgent_write_is_never_behind_counts() -> None:
    writing = WritingPools()
    writing.write_counts(5_000, 30.0)

    assert [writing.budget.wait(("ns", f"urgent-{number}"), urgent=True) for number in range(20)] == [0.0] * 20


def test_pool_that_waits_with_counts_writes_a_condition_at_once() -> None:
    writing = WritingPools()
    writing.write_counts(5_000, 30.0)
    waiting = next(key for number in range(5_000) if writing.budget.waiting(key := pool(number)) > 1.0)

    assert writing.budget.wait(waiting, urgent=True) == 0.0


def test_counts_wait_while_many_conditions_are_written() -> None:
    writing = WritingPools()
    urgent = [writing.budget.wait(("ns", f"urgent-{number}"), urgent=True) for number in range(5_000)]

    assert writing.budget.wait(pool(1), urgent=False) > 0
    assert urgent.count(0.0) == RATE
    assert 90 < max(urgent) < 105


def test_writes_under_way_leave_loops_free() -> None:
    writing = WritingPools()
    with writing.budget.writing(), writing.budget.writing(), writing.budget.writing(), writing.budget.writing():
        assert writing.budget.wait(pool(1), urgent=False) > 0
        assert writing.budget.wait(pool(2), urgent=True) == 0
        with writing.budget.writing(), writing.budget.writing():
            assert writing.budget.wait(pool(3), urgent=True) > 0
    writing.now = 1.0
    assert writing.budget.wait(pool(1), urgent=False) == 0


def test_forgotten_pool_has_no_place() -> None:
    writing = WritingPools()
    writing.write_counts(5_000, 30.0)
    writing.budget.forget_all()

    assert max(writing.budget.waiting(pool(number)) for number in range(5_000)) == 0.0
