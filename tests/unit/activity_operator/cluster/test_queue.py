"""The work queue: every change is looked at, nobody looks at one pool twice at once."""

import asyncio

from activity_operator.cluster.queue import Queue

A, B, C = ("ns", "a"), ("ns", "b"), ("ns", "c")


def queue_of(*keys: tuple[str, str]) -> Queue:
    queue = Queue(lambda: 0.0)
    for key in keys:
        queue.add(key)
    return queue


async def test_a_key_added_many_times_is_handed_out_once() -> None:
    queue = queue_of(A, A, B, A)

    assert [await queue.get(), await queue.get()] == [A, B]
    assert len(queue) == 0


async def test_a_key_that_is_worked_on_is_not_handed_to_a_second_worker() -> None:
    queue = queue_of(A)
    await queue.get()
    queue.add(A)
    queue.add(B)

    assert await queue.get() == B
    assert len(queue) == 0


async def test_a_change_during_the_work_brings_the_key_back_after_it() -> None:
    queue = queue_of(A)
    await queue.get()
    queue.add(A)
    queue.done(A)

    assert await queue.get() == A


async def test_a_key_without_a_change_during_the_work_does_not_come_back() -> None:
    queue = queue_of(A)
    await queue.get()
    queue.done(A)

    assert len(queue) == 0


async def test_an_urgent_key_goes_before_those_that_wait() -> None:
    queue = queue_of(A, B, C)
    queue.add(C, urgent=True)

    assert [await queue.get() for _ in range(3)] == [C, A, B]


async def test_a_waiting_worker_is_woken_by_the_next_key() -> None:
    queue = Queue(lambda: 0.0)
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add(A)

    assert await waiting == A


async def test_the_oldest_work_is_known_until_it_is_done() -> None:
    times = iter((1.0, 2.0, 10.0, 20.0))
    queue = Queue(lambda: next(times))
    queue.add(A)
    queue.add(B)
    await queue.get()
    await queue.get()

    assert queue.oldest() == 10.0
    queue.done(A)
    assert queue.oldest() == 20.0
    queue.done(B)
    assert queue.oldest() is None
