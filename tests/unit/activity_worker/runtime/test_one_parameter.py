"""Handlers with one parameter: their return value is the output, their exception a failure."""

from typing import Any

import pytest

from activity_worker import activity
from activity_worker.activity import TaskRequest
from activity_worker.errors import SourceError, TaskFailed
from activity_worker.runtime.encoding import MAX_CAUSE_BYTES, MAX_ERROR_BYTES, MAX_OUTPUT_BYTES
from tests.unit.activity_worker.runtime.recorded_worker import RecordedWorker, double

FAILED = ["task:received", "task:start", "task:errored", "task:failure", "task:done"]


async def test_return_value_is_the_output() -> None:
    recorded = RecordedWorker(double)
    token = await recorded.one('{"n": 21}')
    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:success", "task:done"]
    assert recorded.source.conclusions[token].output == "42"


async def test_exception_is_a_failure_with_its_name_message_and_traceback() -> None:
    async def handler(request: TaskRequest) -> None:
        raise KeyError("missing part")

    recorded = RecordedWorker(handler)
    token = await recorded.one()
    assert recorded.recorder.tasks() == FAILED
    failure = recorded.source.conclusions[token]
    assert failure.error == "KeyError"
    assert failure.cause.startswith("'missing part'")
    assert "Traceback" in failure.cause
    assert "in handler" in failure.cause


async def test_traceback_begins_in_the_handler() -> None:
    async def raises(request: TaskRequest) -> None:
        raise KeyError("missing part")

    async def returns(request: TaskRequest) -> object:
        return object()

    for handler, traced in ((raises, True), (returns, False)):
        recorded = RecordedWorker(handler)
        cause = recorded.source.conclusions[await recorded.one()].cause
        assert ("Traceback" in cause) is traced
        assert "/activity_worker/runtime/runner.py" not in cause


async def test_handler_may_name_its_failure() -> None:
    async def handler(request: TaskRequest) -> None:
        raise TaskFailed("Upstream.Busy", "come back later")

    recorded = RecordedWorker(handler)
    failure = recorded.source.conclusions[await recorded.one()]
    assert (failure.error, failure.cause) == ("Upstream.Busy", "come back later")


async def test_error_and_cause_are_trimmed_to_the_limits_of_the_service() -> None:
    async def handler(request: TaskRequest) -> None:
        raise type("E" * 300, (Exception,), {})("ä" * 100_000)

    recorded = RecordedWorker(handler)
    failure = recorded.source.conclusions[await recorded.one()]
    assert len(failure.error.encode()) == MAX_ERROR_BYTES
    assert len(failure.cause.encode()) <= MAX_CAUSE_BYTES
    assert "200000 bytes, trimmed" in failure.cause


@pytest.mark.parametrize("on_error", ["fail", "leave"])
@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("x" * MAX_OUTPUT_BYTES, "ActivityPool.OutputTooLarge"),
        ("ä" * (MAX_OUTPUT_BYTES // 2), "ActivityPool.OutputTooLarge"),
        (object(), "ActivityPool.OutputNotJson"),
        (float("nan"), "ActivityPool.OutputNotJson"),
        ("\ud800", "ActivityPool.OutputNotJson"),
        ({1, object()}, "ActivityPool.OutputNotJson"),
    ],
)
async def test_output_that_cannot_be_sent_is_a_named_failure(output: Any, error: str, on_error: str) -> None:
    async def handler(request: TaskRequest) -> Any:
        return output

    recorded = RecordedWorker(handler, on_error=on_error)
    failure = recorded.source.conclusions[await recorded.one()]
    assert failure.error == error
    assert recorded.recorder.tasks() == FAILED


async def test_output_of_maximum_size_is_accepted() -> None:
    async def handler(request: TaskRequest) -> str:
        return "x" * (MAX_OUTPUT_BYTES - 2)

    recorded = RecordedWorker(handler)
    assert recorded.source.conclusions[await recorded.one()].result == "success"


async def test_output_that_the_service_refuses_is_a_named_failure() -> None:
    recorded = RecordedWorker(double)
    recorded.source.refuse("succeed", SourceError("InvalidOutput", "no"))
    failure = recorded.source.conclusions[await recorded.one()]
    assert failure.error == "ActivityPool.OutputRejected"
    assert failure.cause.startswith("the service refused the output: InvalidOutput: no")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, StopIteration])
async def test_handler_that_raises_system_exit_only_fails_its_task(kind: type[BaseException]) -> None:
    async def handler(request: TaskRequest) -> None:
        if request.input == 1:
            raise kind

    recorded = RecordedWorker(handler)
    await recorded.worker.start()
    first, second = recorded.source.put("1"), recorded.source.put("2")
    assert (await recorded.source.concluded(first)).error in {kind.__name__, "RuntimeError"}
    assert (await recorded.source.concluded(second)).result == "success"
    await recorded.worker.stop(abort_polls=True)


async def test_coroutine_returned_by_a_lambda_is_awaited() -> None:
    recorded = RecordedWorker(lambda request: double(request))  # noqa: PLW0108 - the test needs a plain function
    assert recorded.source.conclusions[await recorded.one()].output == "2"


async def test_current_task_is_known_below_the_handler() -> None:
    async def handler(request: TaskRequest) -> str:
        activity.heartbeat({"done": 1})
        assert not activity.cancelled()
        return activity.info().lease_id

    recorded = RecordedWorker(handler)
    token = await recorded.one()
    assert len(recorded.source.conclusions[token].output) == 34
    with pytest.raises(RuntimeError, match="no task runs here"):
        activity.info()
