"""The work queue: every change is processed, and one pool is never processed twice at the same time."""

import asyncio

from activity_operator.cluster.delay_queue import DelayQueue
from activity_operator.cluster.resources import Key
from activity_operator.cluster.workqueue import LEAST_SECONDS, WorkQueue

A, B, C = ("ns", "a"), ("ns", "b"), ("ns", "c")


def queue_of(*keys: tuple[str, str]) -> WorkQueue:
    queue = WorkQueue(lambda: 0.0)
    for key in keys:
        queue.add(key)
    return queue


async def test_key_added_many_times_is_returned_once() -> None:
    queue = queue_of(A, A, B, A)

    assert [await queue.get(), await queue.get()] == [A, B]
    assert len(queue) == 0


async def test_key_in_progress_is_not_returned_again() -> None:
    queue = queue_of(A)
    await queue.get()
    queue.add(A)
    queue.add(B)

    assert await queue.get() == B
    assert len(queue) == 0


async def test_key_added_while_in_progress_returns_after_done() -> None:
    queue = queue_of(A)
    await queue.get()
    queue.add(A)
    queue.done(A)

    assert await queue.get() == A


async def test_key_not_added_while_in_progress_does_not_return() -> None:
    queue = queue_of(A)
    await queue.get()
    queue.done(A)

    assert len(queue) == 0


async def test_urgent_key_overtakes_waiting_keys() -> None:
    queue = queue_of(A, B, C)
    queue.add(C, urgent=True)

    assert [await queue.get() for _ in range(3)] == [C, A, B]


async def test_next_key_wakes_a_waiting_get() -> None:
    queue = WorkQueue(lambda: 0.0)
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add(A)

    assert await waiting == A


async def test_oldest_start_time_is_known_until_done() -> None:
    times = iter((1.0, 2.0, 10.0, 20.0))
    queue = WorkQueue(lambda: next(times))
    queue.add(A)
    queue.add(B)
    await queue.get()
    await queue.get()

    assert queue.oldest() == 10.0
    queue.done(A)
    assert queue.oldest() == 20.0
    queue.done(B)
    assert queue.oldest() is None


class BusyPool:
    """A queue with a least interval, the due times behind it, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due = DelayQueue(self.add, lambda: self.now)
        self.queue = WorkQueue(lambda: self.now, self.due.advance)

    def add(self, key: Key) -> None:
        """Queue a key that is due."""
        self.queue.add(key)

    def move(self, seconds: float) -> None:
        """Let time pass, and queue what is due."""
        self.now += seconds
        self.due.pop_due()

    async def reconcile(self) -> None:
        """Reconcile the next key, which has to wait in the queue."""
        assert len(self.queue) == 1
        self.queue.done(await self.queue.get())


async def test_first_change_after_a_rest_is_looked_at_once() -> None:
    pool = BusyPool()
    pool.queue.add(A)
    await pool.reconcile()
    pool.move(LEAST_SECONDS)
    pool.queue.add(A)

    assert len(pool.queue) == 1


async def test_changes_of_a_busy_pool_share_a_reconciliation_per_interval() -> None:
    """A pool of 1,000 workers with short tasks brings 200 changed reports a second."""
    pool, looks = BusyPool(), 0
    for _ in range(200):
        pool.queue.add(A)
        if len(pool.queue):
            await pool.reconcile()
            looks += 1
        pool.move(1 / 200)

    assert 9 <= looks <= 11


async def test_change_during_a_reconciliation_waits_for_the_interval() -> None:
    pool = BusyPool()
    pool.queue.add(A)
    running = await pool.queue.get()
    pool.queue.add(A)
    pool.queue.done(running)
    assert len(pool.queue) == 0

    pool.move(LEAST_SECONDS)
    assert await pool.queue.get() == A


async def test_urgent_change_does_not_wait_for_the_interval() -> None:
    pool = BusyPool()
    pool.queue.add(A)
    await pool.reconcile()
    pool.queue.add(A)
    assert len(pool.queue) == 0
    pool.queue.add(A, urgent=True)

    assert await pool.queue.get() == A


async def test_waiting_time_counts_from_the_first_change() -> None:
    pool = BusyPool()
    pool.queue.add(A)
    await pool.reconcile()
    pool.move(0.03)
    pool.queue.add(A)
    pool.move(LEAST_SECONDS)

    assert pool.queue.asked_at(await pool.queue.get(), 0.0) == 0.03


async def test_pools_at_rest_leave_nothing_behind() -> None:
    pool = BusyPool()
    for number in range(100):
        pool.queue.add(("ns", f"p{number}"))
        await pool.reconcile()
        pool.move(LEAST_SECONDS)

    assert len(pool.queue._again) == 1


async def test_pools_at_rest_leave_nothing_behind_beside_a_busy_one() -> None:
    pool = BusyPool()
    for number in range(100):
        for key in (("ns", "busy"), ("ns", f"p{number}")):
            pool.queue.add(key)
            await pool.reconcile()
        pool.move(LEAST_SECONDS)

    assert len(pool.queue._again) <= 2
