"""The API server itself refuses the operator's token; its file gets another, in time or late, and nothing is lost."""

import pytest

from tests.faults.campaign import Played
from tests.faults.conftest import side_by_side
from tests.faults.token_runs import play

pytestmark = pytest.mark.timeout(400)

#: `python -m tests.faults --part token` plays all.
BOUNDED = ("renewed soon", "renewed late")


@pytest.fixture(scope="module")
def losses() -> dict[str, Played]:
    """All of them, played once, side by side."""
    return side_by_side(play, BOUNDED)


@pytest.mark.parametrize("name", BOUNDED)
def test_a_refused_token_costs_no_task_and_the_next_one_is_used(name: str, losses: dict[str, Played]) -> None:
    run = losses[name].run

    assert run.wrong == "", f"{run.state}\n{run.log}"
    assert run.harm.words == ()
