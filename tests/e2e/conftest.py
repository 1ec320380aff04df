"""One harness for all end-to-end tests, a namespace for each test. `KEEP=1` leaves the operator installed."""

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.cluster import probe
from tests.e2e.harness import ClusterHarness, set_up, tear_down


@pytest.fixture(scope="session")
def harness() -> ClusterHarness:
    """The operator installed beside an emulator, shared by all test processes."""
    return set_up()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Clear the harness at the end, in the main process of pytest-xdist only."""
    stays = os.environ.get("KEEP") or session.config.getoption("collectonly")
    if not hasattr(session.config, "workerinput") and not stays:
        tear_down()


@pytest.fixture
def namespace(harness: ClusterHarness) -> Iterator[str]:
    """A restricted namespace for one test."""
    with probe.namespace(harness.cluster, f"e2e-{uuid.uuid4().hex[:6]}") as name:
        harness.timeline(name)
        yield name
        harness.forget(name)
        probe.end_workers(harness.cluster, name)
