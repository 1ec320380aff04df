"""SQLite's single writer: which requests share a transaction, and what each caller gets."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text

from activity_worker.database.engine import SingleWriterTransactions


class Numbers:
    """A table of numbers behind a gate whose thread can be blocked."""

    def __init__(self, path: Path) -> None:
        self.engine: Engine = create_engine(f"sqlite:///{path}")
        event.listen(self.engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
        event.listen(self.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        self.commits = 0
        event.listen(self.engine, "commit", self._committed)
        self.gate = SingleWriterTransactions(self.engine)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def _committed(self, _: Connection) -> None:
        self.commits += 1

    async def insert(self, number: int) -> int:
        def work(connection: Connection) -> int:
            connection.execute(text("INSERT INTO numbers VALUES (:n)"), {"n": number})
            if number < 0:
                raise ValueError(f"{number} is no number here")
            return number

        return await self.gate.write(work)

    async def all(self) -> list[int]:
        return await self.gate.write(
            lambda connection: list(connection.execute(text("SELECT n FROM numbers ORDER BY n")).scalars())
        )

    def hold_up(self) -> "asyncio.Task[None]":
        def work(_: Connection) -> None:
            self.begun.set()
            self.go_on.wait(20)

        return asyncio.create_task(self.gate.write(work))


@pytest.fixture
async def numbers(tmp_path: Path) -> AsyncIterator[Numbers]:
    made = Numbers(tmp_path / "numbers.db")
    await made.gate.write(lambda connection: connection.execute(text("CREATE TABLE numbers (n INTEGER)")))
    yield made
    await made.gate.close()


async def held_up(numbers: Numbers, *asked: int) -> list["asyncio.Task[int]"]:
    """Ask for numbers while the thread is blocked, so that they wait together."""
    holding = numbers.hold_up()
    await asyncio.to_thread(numbers.begun.wait, 20)
    tasks = [asyncio.create_task(numbers.insert(number)) for number in asked]
    await asyncio.sleep(0)
    numbers.commits = 0
    asyncio.get_running_loop().call_soon(numbers.go_on.set)
    await holding
    return tasks


async def test_waiting_requests_share_a_transaction(numbers: Numbers) -> None:
    tasks = await held_up(numbers, 1, 2, 3)

    assert await asyncio.gather(*tasks) == [1, 2, 3]
    assert await numbers.all() == [1, 2, 3]
    assert numbers.commits == 1 + 1 + 1  # the blocking request, the waiting ones, and the read


async def test_failing_request_gets_its_error_and_affects_no_other(numbers: Numbers) -> None:
    one, bad, two = await held_up(numbers, 1, -1, 2)

    with pytest.raises(ValueError, match="-1 is no number here"):
        await bad
    assert [await one, await two] == [1, 2]
    assert await numbers.all() == [1, 2]


async def test_request_cancelled_before_its_start_is_not_done(numbers: Numbers) -> None:
    holding = numbers.hold_up()
    await asyncio.to_thread(numbers.begun.wait, 20)
    given_up, wanted = asyncio.create_task(numbers.insert(1)), asyncio.create_task(numbers.insert(2))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    numbers.go_on.set()
    await holding

    assert await wanted == 2
    assert await numbers.all() == [2]


async def test_failed_commit_is_an_error_for_every_request(numbers: Numbers) -> None:
    def refused(connection: Connection) -> None:
        if connection.exec_driver_sql("SELECT count(*) FROM numbers").scalar_one() > 0:
            raise OSError("the disk is full")

    event.listen(numbers.engine, "commit", refused)
    tasks = await held_up(numbers, 1, 2)
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    event.remove(numbers.engine, "commit", refused)

    assert [str(one) for one in errors] == ["the disk is full"] * 2
    assert await numbers.all() == []
