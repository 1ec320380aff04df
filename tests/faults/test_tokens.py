"""The API server refuses the operator's token; the next token is in its file in time or late, and no task is lost."""

import pytest

from tests.faults.campaign import Played
from tests.faults.conftest import side_by_side
from tests.faults.token_runs import play

pytestmark = pytest.mark.timeout(400)

#: `python -m tests.faults --part token` plays all.
BOUNDED = ("renewed soon", "renewed late")


@pytest.fixture(scope="module")
def losses() -> dict[str, Played]:
    """Return all bounded scenarios, played once, at the same time."""
    return side_by_side(play, BOUNDED)


@pytest.mark.parametrize("name", BOUNDED)
def test_refused_token_loses_no_task_and_the_next_token_is_used(name: str, losses: dict[str, Played]) -> None:
    run = losses[name].run

    assert run.wrong == "", f"{run.state}\n{run.log}"
    assert run.harm.words == ()
