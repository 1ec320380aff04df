"""A handler may hand its task's token away and let somebody else conclude the task."""

from activity_worker.activity import TaskRequest
from activity_worker.errors import ConcludeLater
from tests.unit.activity_worker.runtime.world import World


async def hand_away(request: TaskRequest) -> None:
    raise ConcludeLater


async def test_task_that_is_handed_away_is_left_without_an_answer() -> None:
    world = World(hand_away)

    token = await world.one()

    assert token not in world.source.conclusions
    assert world.recorder.tasks() == ["task:received", "task:start", "task:done"]
    _, response = world.recorder.payload("task:done")
    assert response.result == "later"
    await world.source.succeed(token, '"by somebody else"')
    assert world.source.conclusions[token].output == '"by somebody else"'


async def test_no_heartbeats_are_sent_for_a_task_that_is_handed_away() -> None:
    world = World(hand_away, heartbeat_seconds=1)

    await world.one()

    assert world.source.heartbeats == []


async def test_source_whose_tokens_stay_fails_the_task() -> None:
    world = World(hand_away)
    world.source.tokens_travel = False

    token = await world.one()

    assert world.source.conclusions[token].error == "ActivityPool.CannotConcludeLater"
