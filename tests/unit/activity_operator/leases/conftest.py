"""Run the tests of this folder in virtual time."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.activity_operator.leases.world import Operator, World
from tests.unit.activity_operator.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualLoop]]:
    """Run every asynchronous test here on a loop in virtual time."""
    return {"virtual": VirtualLoop}


@pytest.fixture
def world() -> World:
    """Return a cluster and a task service without an operator."""
    return World()


@pytest.fixture
async def operator(world: World) -> AsyncIterator[Operator]:
    """Run an operator that leads in the world."""
    operator = await Operator.leading(world)
    yield operator
    await operator.kill()
