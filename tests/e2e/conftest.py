"""One stage for all end-to-end tests, a namespace for each."""

import uuid
from collections.abc import Iterator

import pytest

from tests.cluster import probe
from tests.e2e.stage import Stage, set_up, tear_down


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """The operator installed beside an emulator."""
    made = set_up()
    yield made
    tear_down(made.cluster)


@pytest.fixture
def namespace(stage: Stage) -> Iterator[str]:
    """A restricted namespace of the test's own."""
    with probe.namespace(stage.cluster, f"e2e-{uuid.uuid4().hex[:6]}") as name:
        yield name
