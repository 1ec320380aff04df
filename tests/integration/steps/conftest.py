"""Task stores to test on: SQLite in a file, and PostgreSQL."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from activity_worker.steps.store import TaskStore
from tests.servers.postgres import postgres


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    with postgres(durable=False) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    server = str(request.getfixturevalue("server"))
    name = f"t{uuid.uuid4().hex[:8]}"
    engine = create_async_engine(server.replace("postgresql", "postgresql+asyncpg"), isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await connection.execute(text(f"CREATE DATABASE {name}"))
    await engine.dispose()
    return server.removesuffix("postgres") + name


@pytest.fixture
async def store(url: str) -> AsyncIterator[TaskStore]:
    """An empty store."""
    opened = await TaskStore.open(url)
    yield opened
    await opened.close()
