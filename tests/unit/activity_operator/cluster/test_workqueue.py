"""The work queue: every change is processed, and one pool is never processed twice at the same time."""

import asyncio

from activity_operator.cluster.workqueue import WorkQueue

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
