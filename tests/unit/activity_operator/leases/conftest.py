"""Run the tests of this folder in virtual time."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.activity_operator.leases.shared_state import Operator, SharedState
from tests.unit.activity_operator.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualLoop]]:
    """Run every asynchronous test here on a loop in virtual time."""
    return {"virtual": VirtualLoop}


@pytest.fixture
def shared() -> SharedState:
    """Return a cluster and a task service without an operator."""
    return SharedState()


@pytest.fixture
async def operator(shared: SharedState) -> AsyncIterator[Operator]:
    """Run an operator that leads, over the shared state."""
    operator = await Operator.leading(shared)
    yield operator
    await operator.kill()
