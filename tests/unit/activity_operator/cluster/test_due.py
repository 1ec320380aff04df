"""Due times: one a pool, the latest word counts."""

import asyncio

from activity_operator.cluster.due import Due

A, B = ("ns", "a"), ("ns", "b")


class Table:
    """A heap of due times on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.added: list[tuple[str, str]] = []
        self.due = Due(self.added.append, lambda: self.now)


def test_a_key_is_handed_over_when_its_time_has_come() -> None:
    table = Table()
    table.due.set(A, 5.0)

    assert table.due.pop_due() == 5.0
    assert table.added == []
    table.now = 5.0
    assert table.due.pop_due() is None
    assert table.added == [A]


def test_a_later_time_replaces_an_earlier_one() -> None:
    table = Table()
    table.due.set(A, 5.0)
    table.due.set(A, 9.0)
    table.now = 5.0

    assert table.due.pop_due() == 4.0
    assert table.added == []


def test_an_earlier_time_replaces_a_later_one_and_comes_once() -> None:
    table = Table()
    table.due.set(A, 9.0)
    table.due.set(A, 5.0)
    table.now = 10.0
    table.due.pop_due()

    assert table.added == [A]


def test_a_withdrawn_time_never_comes() -> None:
    table = Table()
    table.due.set(A, 5.0)
    table.due.set(A, None)
    table.now = 10.0
    table.due.pop_due()

    assert table.added == []
    assert len(table.due) == 0


def test_keys_come_in_the_order_of_their_times() -> None:
    table = Table()
    table.due.set(A, 2.0)
    table.due.set(B, 1.0)
    table.now = 3.0
    table.due.pop_due()

    assert table.added == [B, A]


async def test_a_sleeping_heap_is_woken_by_an_earlier_time() -> None:
    came = asyncio.Event()
    due = Due(lambda _: came.set(), asyncio.get_running_loop().time)
    task = asyncio.create_task(due.run())
    due.set(B, asyncio.get_running_loop().time() + 3600)
    await asyncio.sleep(0)
    due.set(A, asyncio.get_running_loop().time())
    async with asyncio.timeout(5):
        await came.wait()
    task.cancel()
