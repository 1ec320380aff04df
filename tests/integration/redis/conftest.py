"""A server for the suite, which is emptied before every test."""

from collections.abc import AsyncIterator, Iterator

import pytest

from activity_worker.wire.redis_connection import RedisClient, open_client
from tests.servers.redis import RedisServer, redis_server


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    """One server for all tests that do not damage it."""
    with redis_server() as running:
        yield running


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[RedisClient]:
    """A direct client of the server."""
    asking = open_client(server.url)
    await asking.call("FLUSHALL")
    yield asking
    await asking.close()


@pytest.fixture(params=["dialect", "atomic"])
def atomic(request: pytest.FixtureRequest) -> bool:
    """Run the test with both protocols: the dialect and the atomic steps."""
    return bool(request.param == "atomic")
