"""One control plane, one operator, for all attacks of the session."""

from collections.abc import Iterator

import pytest

from tests.hostile.workers.background import Background
from tests.hostile.workers.world import World, world


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    """A loop in a thread."""
    made = Background()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def here(background: Background) -> Iterator[World]:
    """The world that is attacked."""
    context = world()
    yield background.enter(context)
    background.leave(context)


@pytest.fixture(autouse=True)
def _by_itself(here: World) -> None:
    """Fail a test if honest workers had errors while it ran."""
    for one in (here.mate, here.honest):
        one.wrong.clear()
