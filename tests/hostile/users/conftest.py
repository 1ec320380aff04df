"""One control plane and one operator for all tests; what many tests check is played once."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.hostile.users.batch import Batch, play
from tests.hostile.users.tenant_cluster import TenantCluster, tenants


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def here() -> AsyncIterator[TenantCluster]:
    """The cluster, with its honest pool at work."""
    async with tenants() as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def batch(here: TenantCluster) -> Batch:
    """Generated pools and former findings, played at the same time."""
    return await play(here)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the first test that uses the batch a longer time limit."""
    for item in items:
        if "hostile/users" in str(item.path):
            item.add_marker(pytest.mark.timeout(900))
