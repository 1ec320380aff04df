"""Handlers with two parameters: the events and errors of the published runtime, exactly."""

from typing import Any

import pytest

from activity_worker.activity import TaskRequest, TaskResponse, TaskResponseToolkit
from activity_worker.errors import (
    InvalidTaskInputError,
    LeaseLostError,
    NoResponseSentError,
    OutputRejectedError,
    ResponseAlreadySentError,
    SourceError,
)
from tests.unit.activity_worker.runtime.world import POLL, World


async def answer(request: TaskRequest, respond: TaskResponseToolkit) -> None:
    await respond.success({"was": request.input})


async def test_success_has_its_events_and_output() -> None:
    world = World(answer)
    token = await world.one('{"n": 1}')
    assert world.recorder.names == [*POLL, "task:received", "task:start", "task:success", "task:done"]
    assert world.source.conclusions[token].output == '{"was":{"n":1}}'


async def test_heartbeat_emits_its_event() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.heartbeat()
        await respond.success()

    world = World(handler)
    await world.one()
    assert world.recorder.tasks() == ["task:received", "task:start", "task:heartbeat", "task:success", "task:done"]


async def test_failure_response_is_not_an_error() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.failure(error="Mine", cause="because")

    world = World(handler)
    token = await world.one()
    assert world.recorder.tasks() == ["task:received", "task:start", "task:failure", "task:done"]
    assert (world.source.conclusions[token].error, world.source.conclusions[token].cause) == ("Mine", "because")


async def test_done_carries_request_and_response() -> None:
    world = World(answer)
    await world.one()
    request, response = world.recorder.payload("task:done")
    assert isinstance(request, TaskRequest)
    assert isinstance(response, TaskResponse)
    assert (request.worker, request.input, response.result, response.output) == (
        world.worker,
        {"n": 1},
        "success",
        {"was": {"n": 1}},
    )
    assert world.recorder.payload("task:success") == (request, response)
    assert world.recorder.payload("task:received")[0].worker is world.worker


async def test_handler_without_a_response_is_failed() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        pass

    world = World(handler)
    token = await world.one()
    assert world.recorder.tasks() == ["task:received", "task:start", "task:errored", "task:failure", "task:done"]
    error = world.recorder.payload("task:errored")[1]
    assert isinstance(error, NoResponseSentError)
    assert str(error) == "No response sent after handling"
    assert world.source.conclusions[token].error == "NoResponseSentError"


@pytest.mark.parametrize("throws", [True, False])
async def test_failed_task_is_left_to_time_out_with_on_error_leave(throws: bool) -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        if throws:
            raise ValueError("no")

    world = World(handler, on_error="leave")
    await world.one()
    assert world.recorder.tasks() == ["task:received", "task:start", "task:errored", "task:done"]
    assert world.source.conclusions == {}
    assert world.recorder.payload("task:done")[1] is None


async def test_second_response_is_an_error_and_the_first_one_counts() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.success(1)
        await respond.success(2)

    world = World(handler)
    token = await world.one()
    assert world.recorder.tasks() == ["task:received", "task:start", "task:success", "task:errored", "task:done"]
    error = world.recorder.payload("task:errored")[1]
    assert isinstance(error, ResponseAlreadySentError)
    assert str(error) == "Task response already sent"
    assert world.source.conclusions[token].output == "1"


@pytest.mark.parametrize("text", ["{", "", "NaN", "[" * 100_000])
async def test_input_that_is_not_json_never_starts_the_handler(text: str) -> None:
    world = World(answer, on_error="leave")
    await world.one(text)
    assert world.recorder.tasks() == ["task:received", "task:errored", "task:done"]
    error = world.recorder.payload("task:errored")[1]
    assert isinstance(error, InvalidTaskInputError)
    assert str(error) == "Could not parse task input"


async def test_input_that_is_not_json_fails_the_task_by_default() -> None:
    world = World(answer)
    token = await world.one("{")
    assert world.recorder.tasks() == ["task:received", "task:errored", "task:failure", "task:done"]
    assert world.source.conclusions[token].error == "InvalidTaskInputError"


async def test_heartbeat_after_the_response_is_allowed() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.success()
        await respond.heartbeat()

    world = World(handler)
    await world.one()
    assert world.recorder.tasks() == ["task:received", "task:start", "task:success", "task:done"]


async def test_response_is_set_only_after_the_service_accepted_it() -> None:
    responses: list[Any] = []

    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        try:
            await respond.success(1)
        except OutputRejectedError:
            responses.append(respond.response)
        await respond.success(2)
        responses.append(respond.response)

    world = World(handler)
    world.source.refuse("succeed", SourceError("InvalidOutput", "no"))
    token = await world.one()
    assert responses[0] is None
    assert responses[1].output == 2
    assert world.source.conclusions[token].output == "2"


async def test_response_to_an_expired_task_raises_lease_lost() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        world.source.expire(request.task.token)
        await respond.success(1)

    world = World(handler)
    await world.one()
    assert world.recorder.tasks() == ["task:received", "task:start", "task:errored", "task:done"]
    assert isinstance(world.recorder.payload("task:errored")[1], LeaseLostError)


async def test_repr_of_a_task_hides_its_data() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.heartbeat({"secret": 1})
        await respond.success({"secret": 2})
        assert "secret" not in repr(respond.progress)

    world = World(handler)
    await world.one('{"secret": 0}')
    assert not [name for name, payload in world.recorder.events if "secret" in repr(payload)]
