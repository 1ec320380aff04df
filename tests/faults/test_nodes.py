"""A node with busy workers becomes unreachable: no task is lost, whether the node comes back in time or not."""

import pytest

from tests.faults.campaign import Played
from tests.faults.conftest import side_by_side
from tests.faults.node_loss import play

pytestmark = pytest.mark.timeout(400)

#: `python -m tests.faults --part node` plays all.
BOUNDED = ("in time", "too late")


@pytest.fixture(scope="module")
def losses() -> dict[str, Played]:
    """Return all bounded scenarios, played once, at the same time."""
    return side_by_side(play, BOUNDED)


@pytest.mark.parametrize("name", BOUNDED)
def test_unreachable_node_harms_no_busy_worker(name: str, losses: dict[str, Played]) -> None:
    run = losses[name].run

    assert run.wrong == "", f"{run.state}\n{run.log}"
    assert run.harm.words == ()
