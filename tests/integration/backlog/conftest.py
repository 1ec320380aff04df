"""Counted pools beside servers of the test's own."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.backlog.counted import Counted


@pytest.fixture
async def counted() -> AsyncIterator[Counted]:
    counted = Counted()
    yield counted
    await counted.stop()
