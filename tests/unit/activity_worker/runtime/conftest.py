"""Run the tests of this folder in virtual time."""

import pytest

from activity_worker.runtime import heartbeat
from tests.unit.activity_operator.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualLoop]]:
    """Run every asynchronous test here on a loop in virtual time."""
    return {"virtual": VirtualLoop}


@pytest.fixture(autouse=True)
def punctual_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send first heartbeats after the whole interval, without the random early start."""
    monkeypatch.setattr(heartbeat, "EARLY_SHARE", 0.0)
