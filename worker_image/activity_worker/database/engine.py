"""Opening a store's database, SQLite or PostgreSQL, with its tables brought up to date; and its transactions."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import Connection, Dialect, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry

from activity_worker.wire.store_url import StoreUrl, StoreUrlError, is_sqlite, parse_store_url

T = TypeVar("T")
#: Brings the tables of a store up to date.
Upgrade = Callable[[Connection], None]
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
        """See Transactions."""
        async with self._engine.begin() as connection:
            return await connection.run_sync(work)

    async def single(self, work: Callable[[Connection], T]) -> T:
        """See Transactions."""
        async with self._single.begin() as connection:
            return await connection.run_sync(work)

    async def close(self) -> None:
        """See Transactions."""


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
        """See Transactions. Cancelled, work that has begun goes on, and is as if its writer had died just after it."""
        loop = asyncio.get_running_loop()
        asked = _QueuedWork(work, loop.create_future())
        self._asked.append(asked)
        self._thread.submit(self._together, loop)
        value: T = await asked.answer
        return value

    single = write

    async def close(self) -> None:
        """See Transactions."""
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


__all__ = ["StoreUrlError", "connect", "file_of", "reading_engine", "transactions_of"]

#: What the server calls our connections, unless the URL says.
_APPLICATION = "activity-worker"
#: Seconds for which a writer of SQLite waits for another one.
_BUSY_SECONDS = 30
#: Hides SQL parameters in errors, which are logged.
_SILENT = {"hide_parameters": True}
#: Seconds after which an unused connection is tested before its next use; the test costs three round trips.
_UNUSED_SECONDS = 1.0
#: Seconds after which the server ends a transaction whose process does not go on, such as one that is frozen: others
#: wait for the rows that it has locked.
_IDLE_SECONDS = 20
#: The execution option of connections that only read: on SQLite they wait for no writer, and none waits for them.
READS = "activitypool_reads"
#: Under this number PostgreSQL lets one process at a time change the tables.
_MIGRATION_LOCK = 0x61637470


async def connect(url: str, upgrade: Upgrade | None = None) -> AsyncEngine:
    """Return an engine, with tables that `upgrade` has brought up to date (None: the tables stay as they are).

    `url` is `sqlite:///file.db`, `sqlite://` (memory, gone with the process) or `postgresql://user:password@host/name`,
    which may have libpq's options, such as `?sslmode=verify-full&sslrootcert=ca.crt`.
    Raises StoreUrlError, and SQLAlchemy's errors when the database does not answer.
    """
    engine = _engine(url)
    if upgrade is not None:
        try:
            await _upgrade(engine, upgrade)
        except BaseException:
            # The caller does not have the engine yet, so it cannot dispose of it.
            await engine.dispose()
            raise
    return engine


def file_of(url: str) -> Path | None:
    """Return the file that holds the database of a URL, None where that is not SQLite, or memory."""
    if not url.startswith("sqlite"):
        return None
    try:
        database = make_url(url).database
    except ArgumentError:
        return None
    return None if database is None or _is_in_memory(database) or database.startswith("file:") else Path(database)


def transactions_of(engine: AsyncEngine) -> Transactions:
    """Return the way to write to an engine's database."""
    return SingleWriterTransactions(_writer(engine)) if _is_file(engine) else PooledTransactions(engine)


def reading_engine(engine: AsyncEngine) -> AsyncEngine:
    """Return an engine for what only reads: on SQLite it waits for no writer, on PostgreSQL it begins nothing."""
    options = {READS: True} if engine.dialect.name == "sqlite" else {"isolation_level": "AUTOCOMMIT"}
    return engine.execution_options(**options)


async def _upgrade(engine: AsyncEngine, upgrade: Upgrade) -> None:
    # What a URI names may be memory that is shared, and is gone with its last connection.
    if _is_file(engine) and not str(engine.url.database).startswith("file:"):
        await asyncio.to_thread(_upgrade_file, engine, upgrade)
        return
    async with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            await connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _MIGRATION_LOCK})
        await connection.run_sync(upgrade)


def _upgrade_file(engine: AsyncEngine, upgrade: Upgrade) -> None:
    """Not through the asynchronous driver: it tells a loop that may be closed by then that a file cannot be opened."""
    writer = _writer(engine)
    try:
        with writer.begin() as connection:
            upgrade(connection)
    finally:
        writer.dispose()


def _is_file(engine: AsyncEngine) -> bool:
    return engine.dialect.name == "sqlite" and not _is_in_memory(engine.url.database)


def _writer(engine: AsyncEngine) -> Engine:
    """Return a synchronous engine for the same file."""
    url = engine.url.set(drivername="sqlite+pysqlite")
    return _prepared(create_engine(url, connect_args={"timeout": _BUSY_SECONDS}, pool_size=1, **_SILENT))


def _engine(url: str) -> AsyncEngine:
    return _sqlite(url) if is_sqlite(url) else _postgresql(url)


def _postgresql(url: str) -> AsyncEngine:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=partial(_connection, parse_store_url(url)),
        pool_size=5,
        max_overflow=10,
        **_SILENT,
    )
    _ask_the_unused(engine.sync_engine)
    return engine


async def _connection(url: StoreUrl) -> Any:
    # Not SQLAlchemy's reading of the URL: the operator has another one's, and must come to the same server.
    from activity_worker.wire.store_connection import connect_to_store  # noqa: PLC0415 - SQLite needs no such driver

    connection = await connect_to_store(url, name=_APPLICATION)
    await connection.execute(f"SET idle_in_transaction_session_timeout = {_IDLE_SECONDS * 1000}")
    return connection


def _sqlite(url: str) -> AsyncEngine:
    try:
        parsed = make_url(url).set(drivername="sqlite+aiosqlite")
    except ArgumentError:
        raise StoreUrlError("the task store's URL cannot be read; it looks like sqlite:///file.db") from None
    # A database in memory is its connection's own: there is one, for one transaction at a time.
    one = {"poolclass": AsyncAdaptedQueuePool, "pool_size": 1, "max_overflow": 0}
    options: dict[str, Any] = one if _is_in_memory(parsed.database) else {}
    engine = create_async_engine(parsed, connect_args={"timeout": _BUSY_SECONDS}, **options, **_SILENT)
    _prepared(engine.sync_engine)
    return engine


def _is_in_memory(database: str | None) -> bool:
    return database in {None, "", ":memory:"}


def _prepared(engine: Engine) -> Engine:
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_immediately)
    return engine


def _ask_the_unused(engine: Engine) -> None:
    """Let no connection be used that the server has closed since; busy ones are spared the question."""

    def returned(_: Any, entry: ConnectionPoolEntry) -> None:
        entry.info["returned"] = time.monotonic()

    def taken(connection: Any, entry: ConnectionPoolEntry, _: Any) -> None:
        if time.monotonic() - entry.info.get("returned", float("inf")) > _UNUSED_SECONDS:
            _ask(engine.dialect, connection)

    event.listen(engine, "checkin", returned)
    event.listen(engine, "checkout", taken)


def _ask(dialect: Dialect, connection: Any) -> None:
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise DisconnectionError(str(error)) from error


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver's own BEGIN is deferred: two writers that read first would both fail to upgrade.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_immediately(connection: Connection) -> None:
    reads = connection.get_execution_options().get(READS, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
