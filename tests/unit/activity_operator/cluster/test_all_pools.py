"""All pools are queued at once where that matters, and spread over seconds where it does not."""

from activity_operator.cluster.all_pools import MOST_SPREAD_SECONDS, SPREAD_RATE, AllPools
from activity_operator.cluster.delay_queue import DelayQueue
from activity_operator.cluster.resources import POOLS, Key
from activity_operator.cluster.store import Store
from activity_operator.cluster.workqueue import WorkQueue


class StoredPools:
    """`count` pools in the store, none of them queued, on a clock that the test moves."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.queue = WorkQueue(lambda: self.now)
        self.due = DelayQueue(self.queue.add, lambda: self.now)
        store = Store(lambda _: None)
        self.keys: list[Key] = [("ns", f"p{number}") for number in range(count)]
        for namespace, name in self.keys:
            meta = {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "1"}
            store.put(POOLS, {"metadata": meta, "spec": {}})
        spread = iter(range(count))
        self.all_pools = AllPools(store, self.queue, self.due, lambda: self.now, lambda: next(spread) / count)

    def queued_at(self, seconds: float) -> int:
        """Return how many pools wait in the queue at that time."""
        self.now = seconds
        self.due.pop_due()
        return len(self.queue)


def test_all_pools_are_queued_at_once() -> None:
    pools = StoredPools(1_000)
    pools.all_pools.enqueue()

    assert len(pools.queue) == 1_000


def test_looks_after_a_sweep_are_spread_over_seconds() -> None:
    pools = StoredPools(5_000)
    pools.all_pools.enqueue_spread()

    assert pools.queued_at(0.0) <= 1
    assert pools.queued_at(1.0) <= SPREAD_RATE + 1
    assert pools.queued_at(5_000 / SPREAD_RATE) == 5_000


def test_few_pools_are_queued_within_milliseconds() -> None:
    pools = StoredPools(5)
    pools.all_pools.enqueue_spread()

    assert pools.queued_at(0.01) == 5


def test_spread_of_very_many_pools_has_an_end() -> None:
    pools = StoredPools(20_000)
    pools.all_pools.enqueue_spread()

    assert pools.queued_at(MOST_SPREAD_SECONDS) == 20_000


async def test_pool_in_progress_is_reconciled_again_afterwards() -> None:
    """It may have been observed before the change, and its end replaces its due time."""
    pools = StoredPools(2)
    pools.queue.add(pools.keys[0])
    running = await pools.queue.get()
    pools.all_pools.enqueue_spread()
    pools.due.set(running, None)
    pools.queue.done(running)

    assert await pools.queue.get() == running


def test_earlier_due_time_of_a_pool_is_kept() -> None:
    pools = StoredPools(5_000)
    last = pools.keys[-1]
    pools.due.set(last, 0.5)
    pools.all_pools.enqueue_spread()
    pools.queued_at(0.5)

    assert last in pools.queue._queued
