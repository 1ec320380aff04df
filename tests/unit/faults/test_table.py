"""When a campaign proves nothing."""

from tests.faults.campaign import Played
from tests.faults.end_state import Harm
from tests.faults.matrix import Job
from tests.faults.runs import Run
from tests.faults.table import unproven


def played(struck: bool, wrong: str = "", seconds: float = 3.0) -> Played:
    run = Run("burst", (), {}, Harm(), seconds, (), (), struck, wrong=wrong)
    return Played(Job("event", "burst", ()), run)


def test_a_part_that_hardly_ever_struck_proves_nothing() -> None:
    assert unproven([*[played(False)] * 5, *[played(True)] * 3]) == [
        "burst, event: the fault was missed in 5 of 8 runs"
    ]
    assert not unproven([*[played(False)] * 4, *[played(True)] * 4])
    assert not unproven([played(False)] * 7), "a share of a campaign may be unlucky"
