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
from tests.unit.activity_worker.runtime.recorded_worker import POLL, RecordedWorker


async def answer(request: TaskRequest, respond: TaskResponseToolkit) -> None:
    await respond.success({"was": request.input})


async def test_success_has_its_events_and_output() -> None:
    recorded = RecordedWorker(answer)
    token = await recorded.one('{"n": 1}')
    assert recorded.recorder.names == [*POLL, "task:received", "task:start", "task:success", "task:done"]
    assert recorded.source.conclusions[token].output == '{"was":{"n":1}}'


async def test_heartbeat_emits_its_event() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.heartbeat()
        await respond.success()

    recorded = RecordedWorker(handler)
    await recorded.one()
    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:heartbeat", "task:success", "task:done"]


async def test_failure_response_is_not_an_error() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.failure(error="Mine", cause="because")

    recorded = RecordedWorker(handler)
    token = await recorded.one()
    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:failure", "task:done"]
    assert (recorded.source.conclusions[token].error, recorded.source.conclusions[token].cause) == ("Mine", "because")


async def test_done_carries_request_and_response() -> None:
    recorded = RecordedWorker(answer)
    await recorded.one()
    request, response = recorded.recorder.payload("task:done")
    assert isinstance(request, TaskRequest)
    assert isinstance(response, TaskResponse)
    assert (request.worker, request.input, response.result, response.output) == (
        recorded.worker,
        {"n": 1},
        "success",
        {"was": {"n": 1}},
    )
    assert recorded.recorder.payload("task:success") == (request, response)
    assert recorded.recorder.payload("task:received")[0].worker is recorded.worker


async def test_handler_without_a_response_is_failed() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        pass

    recorded = RecordedWorker(handler)
    token = await recorded.one()
    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:errored", "task:failure", "task:done"]
    error = recorded.recorder.payload("task:errored")[1]
    assert isinstance(error, NoResponseSentError)
    assert str(error) == "No response sent after handling"
    assert recorded.source.conclusions[token].error == "NoResponseSentError"


@pytest.mark.parametrize("throws", [True, False])
async def test_failed_task_is_left_to_time_out_with_on_error_leave(throws: bool) -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        if throws:
            raise ValueError("no")

    recorded = RecordedWorker(handler, on_error="leave")
    await recorded.one()
    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:errored", "task:done"]
    assert recorded.source.conclusions == {}
    assert recorded.recorder.payload("task:done")[1] is None


async def test_second_response_is_an_error_and_the_first_one_counts() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.success(1)
        await respond.success(2)

    recorded = RecordedWorker(handler)
    token = await recorded.one()
    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:success", "task:errored", "task:done"]
    error = recorded.recorder.payload("task:errored")[1]
    assert isinstance(error, ResponseAlreadySentError)
    assert str(error) == "Task response already sent"
    assert recorded.source.conclusions[token].output == "1"


@pytest.mark.parametrize("text", ["{", "", "NaN", "[" * 100_000])
async def test_input_that_is_not_json_never_starts_the_handler(text: str) -> None:
    recorded = RecordedWorker(answer, on_error="leave")
    await recorded.one(text)
    assert recorded.recorder.tasks() == ["task:received", "task:errored", "task:done"]
    error = recorded.recorder.payload("task:errored")[1]
    assert isinstance(error, InvalidTaskInputError)
    assert str(error) == "Could not parse task input"


async def test_input_that_is_not_json_fails_the_task_by_default() -> None:
    recorded = RecordedWorker(answer)
    token = await recorded.one("{")
    assert recorded.recorder.tasks() == ["task:received", "task:errored", "task:failure", "task:done"]
    assert recorded.source.conclusions[token].error == "InvalidTaskInputError"


async def test_heartbeat_after_the_response_is_allowed() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.success()
        await respond.heartbeat()

    recorded = RecordedWorker(handler)
    await recorded.one()
    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:success", "task:done"]


async def test_response_is_set_only_after_the_service_accepted_it() -> None:
    responses: list[Any] = []

    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        try:
            await respond.success(1)
        except OutputRejectedError:
            responses.append(respond.response)
        await respond.success(2)
        responses.append(respond.response)

    recorded = RecordedWorker(handler)
    recorded.source.refuse("succeed", SourceError("InvalidOutput", "no"))
    token = await recorded.one()
    assert responses[0] is None
    assert responses[1].output == 2
    assert recorded.source.conclusions[token].output == "2"


async def test_response_to_an_expired_task_raises_lease_lost() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        recorded.source.expire(request.task.token)
        await respond.success(1)

    recorded = RecordedWorker(handler)
    await recorded.one()
    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:errored", "task:done"]
    assert isinstance(recorded.recorder.payload("task:errored")[1], LeaseLostError)


async def test_repr_of_a_task_hides_its_data() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.heartbeat({"secret": 1})
        await respond.success({"secret": 2})
        assert "secret" not in repr(respond.progress)

    recorded = RecordedWorker(handler)
    await recorded.one('{"secret": 0}')
    assert not [name for name, payload in recorded.recorder.events if "secret" in repr(payload)]
