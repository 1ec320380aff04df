"""A handler may hand its task's token away and let somebody else conclude the task."""

from activity_worker.activity import TaskRequest
from activity_worker.errors import ConcludeLater
from tests.unit.activity_worker.runtime.recorded_worker import RecordedWorker


async def hand_away(request: TaskRequest) -> None:
    raise ConcludeLater


async def test_task_that_is_handed_away_is_left_without_an_answer() -> None:
    recorded = RecordedWorker(hand_away)

    token = await recorded.one()

    assert token not in recorded.source.conclusions
    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:done"]
    _, response = recorded.recorder.payload("task:done")
    assert response.result == "later"
    await recorded.source.succeed(token, '"by somebody else"')
    assert recorded.source.conclusions[token].output == '"by somebody else"'


async def test_no_heartbeats_are_sent_for_a_task_that_is_handed_away() -> None:
    recorded = RecordedWorker(hand_away, heartbeat_seconds=1)

    await recorded.one()

    assert recorded.source.heartbeats == []


async def test_source_whose_tokens_stay_fails_the_task() -> None:
    recorded = RecordedWorker(hand_away)
    recorded.source.tokens_travel = False

    token = await recorded.one()

    assert recorded.source.conclusions[token].error == "ActivityPool.CannotConcludeLater"
