"""A server for the suite, which is emptied before every test, and a flow on it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from activity_worker.flows import Flow
from activity_worker.wire.redis_connection import RedisClient, open_client
from tests.integration.flows.shop import PEERS_QUEUES, SHOP
from tests.peers.queues.peer import PeerFlow, peer_flow
from tests.servers.redis import redis_server


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with redis_server() as server:
        yield server.url


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[RedisClient]:
    client = open_client(redis_url)
    await client.call("FLUSHALL")
    yield client
    await client.close()


@pytest.fixture
async def flow(client: RedisClient) -> Flow:
    return Flow(SHOP, client)


@pytest.fixture
async def peer(redis_url: str, client: RedisClient) -> AsyncIterator[PeerFlow]:
    async with peer_flow(redis_url, "shop", PEERS_QUEUES, SHOP.lookup) as peer:
        yield peer
