"""The status as it is stored: the properties of seed 004's table, with their meanings."""

from typing import Any

from activity_worker.steps.advance import begin
from activity_worker.steps.record import status_record
from tests.unit.activity_worker.steps.drive import START, Drive, fails

TABLE = {
    "complete": bool, "error": dict, "retry": bool, "reverse": bool, "running": bool, "subStep": str,
    "stepNum": int, "success": bool, "try": dict,
}  # fmt: skip
BACK = {"method": "a", "reverse": "undo", "retry": True}


def status(drive: Drive) -> dict[str, Any]:
    return status_record(drive.instance, drive.definition)


def test_a_new_instance_has_every_property_of_the_table() -> None:
    seen = status(Drive({"steps": [BACK]}))

    assert {name: type(seen[name]) for name in TABLE} == TABLE
    assert (seen["step"], seen["successOrig"], seen["stepNum"]) == (BACK, None, 0)
    assert not any(seen[name] for name in ("complete", "running", "success", "retry", "reverse", "try", "error"))


def test_the_first_step_runs() -> None:
    drive = Drive({"steps": [BACK]})
    drive.instance = begin(drive.instance, START, 60.0)

    assert (status(drive)["running"], status(drive)["stepNum"], status(drive)["subStep"]) == (True, 0, "method")
    assert drive.instance.next_run_time == START + 60.0


def test_a_retry_to_come_is_said_with_its_tries_and_its_error() -> None:
    drive = Drive({"steps": [BACK]}, {"a": [fails("first")]})
    drive.step()
    seen = status(drive)

    assert (seen["retry"], seen["try"], seen["running"]) == (True, {"method": 1}, False)
    assert seen["error"] == {"method": {"code": "Trouble", "message": "first", "data": None, "stack": ""}}


def test_reversing_says_so_and_keeps_the_success_there_was_before_it() -> None:
    drive = Drive({"steps": [BACK, {"method": "b", "error": "tell"}]}, {"b": [fails()], "undo": [fails(final=True)]})
    for _ in range(3):
        drive.step()
    seen = status(drive)
    assert (seen["reverse"], seen["successOrig"], seen["subStep"], seen["step"]) == (True, True, "reverse", BACK)

    ended = status(drive.run())
    assert (ended["complete"], ended["success"], ended["successOrig"], ended["retry"]) == (True, False, True, False)


def test_the_step_of_a_status_is_the_one_it_stands_at() -> None:
    drive = Drive({"steps": ["a", {"method": "b"}]})
    drive.step()

    assert status(drive)["step"] == {"method": "b"}
