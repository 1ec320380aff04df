"""A node with busy workers on it is missed by the real controllers; whether it comes back in time or not, none pays."""

import pytest

from tests.faults.campaign import Played
from tests.faults.conftest import side_by_side
from tests.faults.node_loss import play

pytestmark = pytest.mark.timeout(400)

#: `python -m tests.faults --part node` plays all.
BOUNDED = ("in time", "too late")


@pytest.fixture(scope="module")
def losses() -> dict[str, Played]:
    """All of them, played once, side by side."""
    return side_by_side(play, BOUNDED)


@pytest.mark.parametrize("name", BOUNDED)
def test_a_missed_node_costs_no_busy_worker_anything(name: str, losses: dict[str, Played]) -> None:
    run = losses[name].run

    assert run.wrong == "", f"{run.state}\n{run.log}"
    assert run.harm.words == ()
