"""The tests' broker stores: SQLite in a file, and PostgreSQL."""

from collections.abc import AsyncIterator

import pytest

from activity_worker.taskbroker.store.broker_store import BrokerPolicy, BrokerStore
from tests.clock import Clock
from tests.servers.databases import server, url

__all__ = ["POLICY", "clock", "server", "store", "url"]

POLICY = BrokerPolicy(grace_seconds=3.0, max_attempts=3)


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until a test moves it."""
    return Clock(1_000_000.0)


@pytest.fixture
async def store(url: str, clock: Clock) -> AsyncIterator[BrokerStore]:
    """An empty store."""
    opened = await BrokerStore.open(url, POLICY, clock=clock)
    yield opened
    await opened.close()
