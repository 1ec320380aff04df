"""Pools with counted sources beside the test's own servers."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.backlog.counted import Counted


@pytest.fixture
async def counted() -> AsyncIterator[Counted]:
    counted = Counted()
    yield counted
    await counted.stop()
