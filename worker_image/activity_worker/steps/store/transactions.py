"""Ways to the database for work that is written as plain functions of a connection: one transaction each."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")
_Answer = tuple[Any, BaseException | None]
#: The most pieces of work in one transaction of SQLite: enough to share the disk's time, short for other processes.
MOST_TOGETHER: Final = 64


class Transactions(Protocol):
    """Runs work in a transaction that is committed when the work returns, and rolled back when it raises."""

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Return what the work returns. On SQLite there is no other writer meanwhile."""
        ...

    async def single(self, work: Callable[[Connection], T]) -> T:
        """The same for work that is one statement, or reads only: PostgreSQL needs no BEGIN and COMMIT around it."""
        ...

    async def close(self) -> None:
        """Give the connections back."""
        ...


class PooledTransactions:
    """Through the engine's own connections: PostgreSQL, and SQLite in memory."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        alone = engine.dialect.name == "postgresql"
        self._single = engine.execution_options(isolation_level="AUTOCOMMIT") if alone else engine

    async def write(self, work: Callable[[Connection], T]) -> T:
        """See Gate."""
        async with self._engine.begin() as connection:
            return await connection.run_sync(work)

    async def single(self, work: Callable[[Connection], T]) -> T:
        """See Gate."""
        async with self._single.begin() as connection:
            return await connection.run_sync(work)

    async def close(self) -> None:
        """See Gate."""


class SingleWriterTransactions:
    """Through a thread with a connection of its own: for files of SQLite, which have one writer.

    Writers of one process would only wait for each other at the file's lock, in naps that grow to 100 ms. What is asked
    for while the thread is busy goes together into its next transaction, each behind a savepoint of its own.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="task-store")
        self._asked: deque[_QueuedWork] = deque()
        self._closed = False

    async def write(self, work: Callable[[Connection], T]) -> T:
        """See Gate. Cancelled, work that has begun goes on, and is as if its writer had died just after it."""
        loop = asyncio.get_running_loop()
        asked = _QueuedWork(work, loop.create_future())
        self._asked.append(asked)
        self._thread.submit(self._together, loop)
        value: T = await asked.answer
        return value

    single = write

    async def close(self) -> None:
        """See Gate."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._engine.dispose)
            self._thread.shutdown(wait=False)

    def _together(self, loop: asyncio.AbstractEventLoop) -> None:
        asked = [self._asked.popleft() for _ in range(min(len(self._asked), MOST_TOGETHER))]
        asked = [one for one in asked if not one.answer.cancelled()]
        if not asked:
            return
        answers: list[_Answer]
        try:
            with self._engine.begin() as connection:
                if len(asked) == 1:
                    answers = [(asked[0].work(connection), None)]
                else:
                    answers = [_done(connection, one.work) for one in asked]
        except BaseException as error:  # noqa: BLE001 - nothing was written; every caller gets the error
            answers = [(None, error)] * len(asked)
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: no caller waits
            loop.call_soon_threadsafe(_tell, asked, answers)


@dataclass(frozen=True, slots=True)
class _QueuedWork:
    work: Callable[[Connection], Any]
    answer: asyncio.Future[Any]


def _done(connection: Connection, work: Callable[[Connection], Any]) -> _Answer:
    try:
        with connection.begin_nested():
            return work(connection), None
    except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
        return None, error


def _tell(asked: list[_QueuedWork], answers: list[_Answer]) -> None:
    for one, (value, error) in zip(asked, answers, strict=True):
        if one.answer.done():
            continue
        if error is None:
            one.answer.set_result(value)
        else:
            one.answer.set_exception(error)
