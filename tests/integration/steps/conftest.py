"""The tests' task stores: SQLite in a file, and PostgreSQL."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from activity_worker.steps.store.task_store import TaskStore
from tests.clock import Clock
from tests.servers.postgres import new_database, postgres


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    with postgres(durable=False) as url:
        yield url


@pytest.fixture
def clock() -> Clock:
    """A clock that starts at 1000 s."""
    return Clock(1000.0)


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    server = str(request.getfixturevalue("server"))
    return await new_database(server)


@pytest.fixture
async def store(url: str) -> AsyncIterator[TaskStore]:
    """An empty store."""
    opened = await TaskStore.open(url)
    yield opened
    await opened.close()
