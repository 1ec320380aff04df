"""Due times: one per pool, and the latest call sets it."""

import asyncio

import pytest

from activity_operator.cluster.delay_queue import SKIPPED_ENTRIES, DelayQueue

A, B = ("ns", "a"), ("ns", "b")


class DueTimes:
    """A heap of due times on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.added: list[tuple[str, str]] = []
        self.due = DelayQueue(self.added.append, lambda: self.now)


def test_key_is_added_when_its_time_has_come() -> None:
    due_times = DueTimes()
    due_times.due.set(A, 5.0)

    assert due_times.due.pop_due() == 5.0
    assert due_times.added == []
    due_times.now = 5.0
    assert due_times.due.pop_due() is None
    assert due_times.added == [A]


def test_later_time_replaces_an_earlier_one() -> None:
    due_times = DueTimes()
    due_times.due.set(A, 5.0)
    due_times.due.set(A, 9.0)
    due_times.now = 5.0

    assert due_times.due.pop_due() == 4.0
    assert due_times.added == []


def test_earlier_time_replaces_a_later_one_and_adds_the_key_once() -> None:
    due_times = DueTimes()
    due_times.due.set(A, 9.0)
    due_times.due.set(A, 5.0)
    due_times.now = 10.0
    due_times.due.pop_due()

    assert due_times.added == [A]


@pytest.mark.parametrize("more", range(6))
def test_key_put_off_in_a_long_heap_costs_no_other_key_its_time(more: int) -> None:
    """The work queue puts a due key off if it has just been reconciled. One such call rebuilds the heap."""
    due_times = DueTimes()
    due_times.due = DelayQueue(lambda key: due_times.due.advance(key, due_times.now + 10.0), lambda: due_times.now)
    due_times.due.set(B, 8.0)
    for number in range(SKIPPED_ENTRIES + more):
        due_times.due.set(A, 2000.0 - number)
    due_times.due.set(A, 5.0)
    due_times.now = 5.0

    assert due_times.due.pop_due() == 3.0


def test_due_time_is_brought_forward_but_never_put_off() -> None:
    due_times = DueTimes()
    due_times.due.set(A, 5.0)
    due_times.due.advance(A, 9.0)
    due_times.due.advance(B, 3.0)

    assert due_times.due.pop_due() == 3.0
    due_times.due.advance(A, 1.0)
    assert due_times.due.pop_due() == 1.0


def test_replaced_times_do_not_pile_up() -> None:
    """A busy pool gets a new due time ten times a second, most of them minutes ahead."""
    due_times = DueTimes()
    due_times.due.set(B, 7.0)
    for number in range(20_000):
        due_times.due.set(A, 1e6 - number)

    assert len(due_times.due._heap) < 2_000
    assert due_times.due.pop_due() == 7.0


def test_withdrawn_time_adds_no_key() -> None:
    due_times = DueTimes()
    due_times.due.set(A, 5.0)
    due_times.due.set(A, None)
    due_times.now = 10.0
    due_times.due.pop_due()

    assert due_times.added == []
    assert len(due_times.due) == 0


def test_keys_are_added_in_the_order_of_their_times() -> None:
    due_times = DueTimes()
    due_times.due.set(A, 2.0)
    due_times.due.set(B, 1.0)
    due_times.now = 3.0
    due_times.due.pop_due()

    assert due_times.added == [B, A]


async def test_earlier_time_wakes_the_sleeping_loop() -> None:
    added = asyncio.Event()
    delay_queue = DelayQueue(lambda _: added.set(), asyncio.get_running_loop().time)
    task = asyncio.create_task(delay_queue.run())
    delay_queue.set(B, asyncio.get_running_loop().time() + 3600)
    await asyncio.sleep(0)
    delay_queue.set(A, asyncio.get_running_loop().time())
    async with asyncio.timeout(5):
        await added.wait()
    task.cancel()
