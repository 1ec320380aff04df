"""All pools are queued at once where that matters, and spread over seconds where it does not."""

from activity_operator.cluster.all_pools import MOST_SPREAD_SECONDS, SPREAD_RATE, AllPools
from activity_operator.cluster.delay_queue import DelayQueue
from activity_operator.cluster.resources import POOLS, Key
from activity_operator.cluster.store import Store
from activity_operator.cluster.workqueue import WorkQueue


class Scene:
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
    scene = Scene(1_000)
    scene.all_pools.enqueue()

    assert len(scene.queue) == 1_000


def test_looks_after_a_sweep_are_spread_over_seconds() -> None:
    scene = Scene(5_000)
    scene.all_pools.enqueue_spread()

    assert scene.queued_at(0.0) <= 1
    assert scene.queued_at(1.0) <= SPREAD_RATE + 1
    assert scene.queued_at(5_000 / SPREAD_RATE) == 5_000


def test_few_pools_are_queued_within_milliseconds() -> None:
    scene = Scene(5)
    scene.all_pools.enqueue_spread()

    assert scene.queued_at(0.01) == 5


def test_spread_of_very_many_pools_has_an_end() -> None:
    scene = Scene(20_000)
    scene.all_pools.enqueue_spread()

    assert scene.queued_at(MOST_SPREAD_SECONDS) == 20_000


async def test_pool_in_progress_is_reconciled_again_afterwards() -> None:
    """It may have been observed before the change, and its end replaces its due time."""
    scene = Scene(2)
    scene.queue.add(scene.keys[0])
    running = await scene.queue.get()
    scene.all_pools.enqueue_spread()
    scene.due.set(running, None)
    scene.queue.done(running)

    assert await scene.queue.get() == running


def test_earlier_due_time_of_a_pool_is_kept() -> None:
    scene = Scene(5_000)
    last = scene.keys[-1]
    scene.due.set(last, 0.5)
    scene.all_pools.enqueue_spread()
    scene.queued_at(0.5)

    assert last in scene.queue._queued
