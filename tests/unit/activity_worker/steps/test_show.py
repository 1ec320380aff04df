"""What a person reads of an instance that has ended, and why."""

from dataclasses import replace

import pytest

from activity_worker.steps import show
from activity_worker.steps.advance import cancel, retry_failed
from activity_worker.steps.errors import StepError, record_of
from activity_worker.steps.outcome import Raised
from activity_worker.steps.record import status_record
from activity_worker.steps.store import Revision, Stored
from tests.unit.activity_worker.steps.drive import START, Drive, fails

TASK = {"steps": [{"method": "a", "reverse": "undo_a"}, "b", "c"]}


def stored(drive: Drive, *, wished: bool = False) -> Stored:
    return Stored(drive.instance, 1, "", wished, START, START)


def last(drive: Drive) -> Revision:
    return Revision(1, START, "", status_record(drive.instance, drive.definition), None, None)


def states(drive: Drive) -> list[str]:
    """The column of the steps' states."""
    shown = show.instance(stored(drive), drive.definition, [], START)
    head, *rows = shown.split("\n\n")[1].splitlines()
    begin, end = head.index("STATE"), head.index("CALLS")
    return [row[begin:end].strip() for row in rows]


def test_a_canceled_instance_reads_canceled_wherever_it_is_shown() -> None:
    drive = Drive(TASK, canceled_after=2).run()

    assert drive.ended == (True, False)
    assert show.state(stored(drive)) == "canceled"
    assert " canceled " in show.instances([stored(drive)], START)
    assert " canceled " in show.revisions([last(drive)])
    assert states(drive) == ["reversed", "done", "canceled"]


@pytest.mark.parametrize("wished", [True, False])
def test_one_that_is_still_on_its_way_back_is_not_there_yet(wished: bool) -> None:
    drive = Drive(TASK)
    drive.step()
    drive.step()
    drive.instance = drive.instance if wished else cancel(drive.definition, drive.instance, START)

    assert show.state(stored(drive, wished=wished)) == ("canceling" if wished else "reversing")


def test_a_failed_instance_reads_failed_even_under_a_code_that_is_called_so() -> None:
    raised = Raised(record_of(StepError("Canceled", "canceled")))
    for error in (fails(), raised):
        drive = Drive(TASK, {"b": [error]}).run()

        assert show.state(stored(drive)) == "failed"
        assert " failed " in show.revisions([last(drive)])
        assert states(drive) == ["reversed", "failed", ""]


def test_a_canceled_instance_that_could_not_be_taken_back_has_failed() -> None:
    drive = Drive(TASK, {"undo_a": [fails()]}, canceled_after=2).run()

    assert show.state(stored(drive)) == "failed"


def test_a_canceled_instance_that_is_started_again_is_not_canceled_any_more() -> None:
    drive = Drive(TASK, canceled_after=2).run()
    again = retry_failed(drive.definition, drive.instance, START)

    assert show.state(replace(stored(drive), instance=again)) == "waiting"
