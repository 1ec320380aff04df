"""The text that a person reads about an instance that has ended."""

from dataclasses import replace

import pytest

from activity_worker.steps import show
from activity_worker.steps.model.errors import StepError, record_of
from activity_worker.steps.model.instance import Raised
from activity_worker.steps.model.rules import cancel, retry_failed
from activity_worker.steps.model.status_json import status_record
from activity_worker.steps.store.rows import Revision, StoredInstance
from tests.unit.activity_worker.steps.model.drive import START, Drive, fails

TASK = {"steps": [{"method": "a", "reverse": "undo_a"}, "b", "c"]}


def stored(drive: Drive, *, requested: bool = False) -> StoredInstance:
    return StoredInstance(drive.instance, 1, "", requested, START, START)


def last(drive: Drive) -> Revision:
    return Revision(1, START, "", status_record(drive.instance, drive.definition), None, None)


def states(drive: Drive) -> list[str]:
    """Return the column of the steps' states."""
    shown = show.instance(stored(drive), drive.definition, [], START)
    head, *rows = shown.split("\n\n")[1].splitlines()
    begin, end = head.index("STATE"), head.index("CALLS")
    return [row[begin:end].strip() for row in rows]


def test_canceled_instance_is_shown_as_canceled_everywhere() -> None:
    drive = Drive(TASK, canceled_after=2).run()

    assert drive.ended == (True, False)
    assert show.state(stored(drive)) == "canceled"
    assert " canceled " in show.instances([stored(drive)], START)
    assert " canceled " in show.revisions([last(drive)])
    assert states(drive) == ["reversed", "done", "canceled"]


@pytest.mark.parametrize("requested", [True, False])
def test_instance_that_is_still_reversing_is_not_shown_as_canceled(requested: bool) -> None:
    drive = Drive(TASK)
    drive.step()
    drive.step()
    drive.instance = drive.instance if requested else cancel(drive.definition, drive.instance, START)

    assert show.state(stored(drive, requested=requested)) == ("canceling" if requested else "reversing")


def test_failed_instance_is_shown_as_failed_with_any_error_code() -> None:
    raised = Raised(record_of(StepError("Canceled", "canceled")))
    for error in (fails(), raised):
        drive = Drive(TASK, {"b": [error]}).run()

        assert show.state(stored(drive)) == "failed"
        assert " failed " in show.revisions([last(drive)])
        assert states(drive) == ["reversed", "failed", ""]


def test_canceled_instance_with_a_failed_reverse_is_shown_as_failed() -> None:
    drive = Drive(TASK, {"undo_a": [fails()]}, canceled_after=2).run()

    assert show.state(stored(drive)) == "failed"


def test_restarted_canceled_instance_is_shown_as_waiting() -> None:
    drive = Drive(TASK, canceled_after=2).run()
    again = retry_failed(drive.definition, drive.instance, START)

    assert show.state(replace(stored(drive), instance=again)) == "waiting"
