"""These tests run in virtual time."""

import pytest

from activity_worker import heartbeat
from tests.unit.activity_operator.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualLoop]]:
    """Run every asynchronous test here on a loop whose clock jumps."""
    return {"virtual": VirtualLoop}


@pytest.fixture(autouse=True)
def punctual_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let first heartbeats be due after the whole interval; by chance, they are earlier."""
    monkeypatch.setattr(heartbeat, "EARLY_SHARE", 0.0)
