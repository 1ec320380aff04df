"""The text that a person reads about an instance that has ended."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from activity_worker.steps.cli import text
from activity_worker.steps.model.errors import StepError, record_of
from activity_worker.steps.model.instance import Instance, Raised
from activity_worker.steps.model.rules import begin, cancel, retry_failed
from activity_worker.steps.store.rows import Revision, StoredInstance, status_record
from tests.unit.activity_worker.steps.model.replay import START, Replay, fails

TASK = {"steps": [{"method": "a", "reverse": "undo_a"}, "b", "c"]}


def stored(replay: Replay, *, requested: bool = False) -> StoredInstance:
    return StoredInstance(replay.instance, 1, "", requested, START, START)


def revision(replay: Replay, instance: Instance | None = None) -> Revision:
    return Revision(1, START, "", status_record(instance or replay.instance, replay.definition), None, None)


def states(replay: Replay, history: Sequence[Revision] = ()) -> list[str]:
    """Return the column of the steps' states."""
    shown = text.instance(stored(replay), replay.definition, history, START)
    head, *rows = shown.split("\n\n")[1].splitlines()
    begin, end = head.index("STATE"), head.index("CALLS")
    return [row[begin:end].strip() for row in rows]


def test_canceled_instance_is_shown_as_canceled_everywhere() -> None:
    replay = Replay(TASK, canceled_after=2).run()

    assert replay.ended == (True, False)
    assert text.state(stored(replay)) == "canceled"
    assert " canceled " in text.instances([stored(replay)], START)
    assert " canceled " in text.revisions([revision(replay)])
    assert states(replay) == ["reversed", "done", "canceled"]


@pytest.mark.parametrize("requested", [True, False])
def test_instance_that_is_still_reversing_is_not_shown_as_canceled(requested: bool) -> None:
    replay = Replay(TASK)
    replay.step()
    replay.step()
    replay.instance = replay.instance if requested else cancel(replay.definition, replay.instance, START)

    assert text.state(stored(replay, requested=requested)) == ("canceling" if requested else "reversing")


def test_failed_instance_is_shown_as_failed_with_any_error_code() -> None:
    raised = Raised(record_of(StepError("Canceled", "canceled")))
    for error in (fails(), raised):
        replay = Replay(TASK, {"b": [error]}).run()

        assert text.state(stored(replay)) == "failed"
        assert " failed " in text.revisions([revision(replay)])
        assert states(replay) == ["reversed", "failed", ""]


def test_canceled_instance_with_a_failed_reverse_is_shown_as_failed() -> None:
    replay = Replay(TASK, {"undo_a": [fails()]}, canceled_after=2).run()

    assert text.state(stored(replay)) == "failed"


def test_steps_of_an_instance_canceled_after_its_last_step_are_shown() -> None:
    replay = Replay({"steps": ["a", {"method": "b", "reverse": "undo_b"}]}, canceled_in=2)
    history = [revision(replay)]
    while not replay.instance.complete:
        running = begin(replay.instance, START, 60.0)
        history.append(revision(replay, running))
        replay.step()
        history.append(revision(replay))

    assert replay.called == ["a", "b", "undo_b"]
    assert states(replay, history) == ["done", "reversed"]


def test_restarted_canceled_instance_is_shown_as_waiting() -> None:
    replay = Replay(TASK, canceled_after=2).run()
    again = retry_failed(replay.definition, replay.instance, START)

    assert text.state(replace(stored(replay), instance=again)) == "waiting"
