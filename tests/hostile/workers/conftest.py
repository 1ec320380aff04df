"""One control plane, one operator, for all attacks of the session."""

from collections.abc import Iterator

import pytest

from tests.hostile.workers.attacked_cluster import AttackedCluster, attacked
from tests.hostile.workers.background import Background


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    """A loop in a thread."""
    made = Background()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def here(background: Background) -> Iterator[AttackedCluster]:
    """The attacked cluster."""
    context = attacked()
    yield background.enter(context)
    background.leave(context)


@pytest.fixture(autouse=True)
def _by_itself(here: AttackedCluster) -> None:
    """Fail a test if honest workers had errors while it ran."""
    for one in (here.mate, here.honest):
        one.wrong.clear()
