"""The stored status of an instance: its documented properties and their meanings."""

from typing import Any

from activity_worker.steps.model.rules import begin
from activity_worker.steps.store.rows import status_record
from tests.unit.activity_worker.steps.model.replay import START, Replay, fails

TABLE = {
    "complete": bool, "error": dict, "retry": bool, "reverse": bool, "running": bool, "subStep": str,
    "stepNum": int, "success": bool, "try": dict,
}  # fmt: skip
BACK = {"method": "a", "reverse": "undo", "retry": True}


def status(replay: Replay) -> dict[str, Any]:
    return status_record(replay.instance, replay.definition)


def test_new_instance_has_every_documented_property() -> None:
    record = status(Replay({"steps": [BACK]}))

    assert {name: type(record[name]) for name in TABLE} == TABLE
    assert (record["step"], record["successOrig"], record["stepNum"]) == (BACK, None, 0)
    assert not any(record[name] for name in ("complete", "running", "success", "retry", "reverse", "try", "error"))


def test_running_first_step_is_recorded() -> None:
    replay = Replay({"steps": [BACK]})
    replay.instance = begin(replay.instance, START, 60.0)

    assert (status(replay)["running"], status(replay)["stepNum"], status(replay)["subStep"]) == (
        True,
        0,
        "method",
    )
    assert replay.instance.next_run_time == START + 60.0


def test_pending_retry_is_recorded_with_attempts_and_error() -> None:
    replay = Replay({"steps": [BACK]}, {"a": [fails("first")]})
    replay.step()
    record = status(replay)

    assert (record["retry"], record["try"], record["running"]) == (True, {"method": 1}, False)
    assert record["error"] == {"method": {"code": "Trouble", "message": "first", "data": None, "stack": ""}}


def test_reversing_instance_keeps_its_original_success() -> None:
    replay = Replay({"steps": [BACK, {"method": "b", "error": "tell"}]}, {"b": [fails()], "undo": [fails(final=True)]})
    for _ in range(3):
        replay.step()
    record = status(replay)
    assert (record["reverse"], record["successOrig"], record["subStep"], record["step"]) == (
        True,
        True,
        "reverse",
        BACK,
    )

    ended = status(replay.run())
    assert (ended["complete"], ended["success"], ended["successOrig"], ended["retry"]) == (True, False, True, False)


def test_recorded_step_is_the_current_one() -> None:
    replay = Replay({"steps": ["a", {"method": "b"}]})
    replay.step()

    assert status(replay)["step"] == {"method": "b"}
