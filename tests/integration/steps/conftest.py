"""The tests' task stores: SQLite in a file, and PostgreSQL."""

from collections.abc import AsyncIterator

import pytest

from activity_worker.steps.store.task_store import TaskStore
from tests.clock import Clock
from tests.servers.databases import server, url

__all__ = ["clock", "server", "store", "url"]


@pytest.fixture
def clock() -> Clock:
    """A clock that starts at 1000 s."""
    return Clock(1000.0)


@pytest.fixture
async def store(url: str) -> AsyncIterator[TaskStore]:
    """An empty store."""
    opened = await TaskStore.open(url)
    yield opened
    await opened.close()
