"""The tests' broker stores: SQLite in a file, and PostgreSQL."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from activity_worker.taskbroker.store.broker_store import BrokerPolicy, BrokerStore
from tests.clock import Clock
from tests.servers.postgres import new_database, postgres

POLICY = BrokerPolicy(grace_seconds=3.0, max_attempts=3)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    with postgres(durable=False) as url:
        yield url


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until a test moves it."""
    return Clock(1_000_000.0)


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/broker.db"
    return await new_database(str(request.getfixturevalue("server")))


@pytest.fixture
async def store(url: str, clock: Clock) -> AsyncIterator[BrokerStore]:
    """An empty store."""
    opened = await BrokerStore.open(url, POLICY, clock=clock)
    yield opened
    await opened.close()
