"""Ways to the database for work that is written as plain functions of a connection: one transaction each."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")


class Gate(Protocol):
    """Runs work in a transaction that is committed when the work returns, and rolled back when it raises."""

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Return what the work returns. On SQLite nobody else writes meanwhile."""
        ...

    async def single(self, work: Callable[[Connection], T]) -> T:
        """The same for work that is one statement, or reads only: PostgreSQL needs no BEGIN and COMMIT around it."""
        ...

    async def close(self) -> None:
        """Give the connections back."""
        ...


class Direct:
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


class Threaded:
    """Through a thread with a connection of its own, one after the other: for files of SQLite, which have one writer.

    Writers of one process would only wait for each other at the file's lock, in naps that grow to 100 ms; and each
    statement from the loop would be a way to a thread and back.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="task-store")

    async def write(self, work: Callable[[Connection], T]) -> T:
        """See Gate. Cancelled, work that has begun goes on, and is as if its writer had died just after it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, work)

    single = write

    async def close(self) -> None:
        """See Gate."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._engine.dispose)
        self._thread.shutdown(wait=False)

    def _transaction(self, work: Callable[[Connection], Any]) -> Any:
        with self._engine.begin() as connection:
            return work(connection)
