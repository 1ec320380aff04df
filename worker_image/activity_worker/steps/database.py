"""Opening a task store's database: SQLite for one machine, PostgreSQL for many; its tables brought up to date."""

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
#: Seconds for which a writer of SQLite waits for another one.
_BUSY_SECONDS = 30
#: The execution option of connections that only read: on SQLite they wait for no writer, and none waits for them.
READS = "activitypool_reads"
#: Where alembic keeps which changes were made.
VERSION_TABLE = "activitypool_schema"
#: Under this number PostgreSQL lets one process at a time change the tables.
_MIGRATION_LOCK = 0x61637470


class StoreUrlError(ValueError):
    """The URL names no database that a task store can use; it is not repeated, since it may hold a password."""


async def connect(url: str, *, migrate: bool = True) -> AsyncEngine:
    """Return an engine whose tables are as this version needs them.

    `url` is `sqlite:///file.db`, `sqlite://` (memory, gone with the process) or `postgresql://user:password@host/name`.
    Raises StoreUrlError, and SQLAlchemy's errors when the database does not answer.
    """
    engine = _engine(url)
    if migrate:
        async with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                await connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _MIGRATION_LOCK})
            await connection.run_sync(_upgrade)
    return engine


def _engine(url: str) -> AsyncEngine:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreUrlError("the task store's URL cannot be read; it looks like postgresql://user@host/name") from None
    kind = parsed.drivername.split("+")[0]
    if kind not in _DRIVERS:
        raise StoreUrlError(f"a task store is sqlite or postgresql, not {kind}")
    parsed = parsed.set(drivername=_DRIVERS[kind])
    if kind != "sqlite":
        return create_async_engine(parsed, pool_size=5, max_overflow=10, pool_pre_ping=True)
    engine = create_async_engine(parsed, connect_args={"timeout": _BUSY_SECONDS}, **_in_memory(parsed.database))
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_immediately)
    return engine


def _in_memory(database: str | None) -> dict[str, Any]:
    """A database in memory is its connection's own: there is one, for one transaction at a time."""
    if database not in {None, "", ":memory:"}:
        return {}
    return {"poolclass": AsyncAdaptedQueuePool, "pool_size": 1, "max_overflow": 0}


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


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    options = {"version_table": VERSION_TABLE}
    there = MigrationContext.configure(connection, opts=options).get_current_revision()
    if there is not None and there not in known:
        # A newer program has been here. Its changes only add, so that old and new work side by side.
        return
    command.upgrade(config, "head")
