"""Handlers with one parameter: a return value is the output, an exception a failure."""

import threading
import time
from typing import Any

import pytest

from activity_worker import activity
from activity_worker.activity import TaskRequest
from activity_worker.blocking import BlockingToolkit
from activity_worker.encoding import MAX_CAUSE_BYTES, MAX_ERROR_BYTES, MAX_OUTPUT_BYTES
from activity_worker.errors import SourceError, TaskFailed
from tests.unit.activity_worker.runtime.world import World, double

FAILED = ["task:received", "task:start", "task:errored", "task:failure", "task:done"]


async def test_the_return_value_is_the_output() -> None:
    world = World(double)
    token = await world.one('{"n": 21}')
    assert world.recorder.tasks() == ["task:received", "task:start", "task:success", "task:done"]
    assert world.source.conclusions[token].output == "42"


async def test_an_exception_is_a_failure_with_its_name_message_and_traceback() -> None:
    async def handler(request: TaskRequest) -> None:
        raise KeyError("missing part")

    world = World(handler)
    token = await world.one()
    assert world.recorder.tasks() == FAILED
    failure = world.source.conclusions[token]
    assert failure.error == "KeyError"
    assert failure.cause.startswith("'missing part'")
    assert "Traceback" in failure.cause
    assert "in handler" in failure.cause


async def test_a_handler_may_name_its_failure() -> None:
    async def handler(request: TaskRequest) -> None:
        raise TaskFailed("Upstream.Busy", "come back later")

    world = World(handler)
    failure = world.source.conclusions[await world.one()]
    assert (failure.error, failure.cause) == ("Upstream.Busy", "come back later")


async def test_error_and_cause_are_trimmed_to_what_the_service_takes() -> None:
    async def handler(request: TaskRequest) -> None:
        raise type("E" * 300, (Exception,), {})("ä" * 100_000)

    world = World(handler)
    failure = world.source.conclusions[await world.one()]
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
        ({1, 2}, "ActivityPool.OutputNotJson"),
    ],
)
async def test_an_output_that_cannot_be_sent_is_a_clear_failure(output: Any, error: str, on_error: str) -> None:
    async def handler(request: TaskRequest) -> Any:
        return output

    world = World(handler, on_error=on_error)
    failure = world.source.conclusions[await world.one()]
    assert failure.error == error
    assert world.recorder.tasks() == FAILED


async def test_the_largest_output_is_taken() -> None:
    async def handler(request: TaskRequest) -> str:
        return "x" * (MAX_OUTPUT_BYTES - 2)

    world = World(handler)
    assert world.source.conclusions[await world.one()].result == "success"


async def test_an_output_that_the_service_refuses_is_a_clear_failure() -> None:
    world = World(double)
    world.source.refuse("succeed", SourceError("InvalidOutput", "no"))
    failure = world.source.conclusions[await world.one()]
    assert failure.error == "ActivityPool.OutputRejected"
    assert failure.cause.startswith("the service refused the output: InvalidOutput: no")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, StopIteration])
@pytest.mark.parametrize("threaded", [True, False])
async def test_a_handler_that_wants_to_end_the_process_only_fails_its_task(
    kind: type[BaseException], threaded: bool
) -> None:
    async def handler(request: TaskRequest) -> None:
        if request.input == 1:
            raise kind

    def plain(request: TaskRequest) -> None:
        if request.input == 1:
            raise kind

    world = World(plain if threaded else handler)
    await world.worker.start()
    first, second = world.source.put("1"), world.source.put("2")
    assert (await world.source.concluded(first)).error in {kind.__name__, "RuntimeError"}
    assert (await world.source.concluded(second)).result == "success"
    await world.worker.stop(abort_polls=True)


async def test_a_plain_function_runs_in_a_thread_of_its_own() -> None:
    seen: list[Any] = []

    def handler(request: TaskRequest) -> int:
        seen.append((threading.current_thread() is threading.main_thread(), activity.info() is request))
        return 1

    world = World(handler)
    assert world.source.conclusions[await world.one()].output == "1"
    assert seen == [(False, True)]


async def test_a_plain_function_with_two_parameters_answers_without_await() -> None:
    def handler(request: TaskRequest, respond: BlockingToolkit) -> None:
        respond.heartbeat("half")
        respond.success("done")
        assert respond.response is not None
        assert respond.response.output == "done"

    world = World(handler)
    assert world.source.conclusions[await world.one()].output == '"done"'
    assert world.recorder.tasks() == ["task:received", "task:start", "task:heartbeat", "task:success", "task:done"]


async def test_a_plain_function_sees_its_cancellation() -> None:
    def handler(request: TaskRequest, respond: BlockingToolkit) -> None:
        assert respond.signal.wait(60)
        raise RuntimeError(f"ending: {respond.signal.reason}")

    world = World(handler, deadline_seconds=0.5)
    failure = world.source.conclusions[await world.one()]
    assert failure.error == "ActivityPool.DeadlineExceeded"


async def test_a_lambda_that_gives_a_coroutine_is_awaited() -> None:
    world = World(lambda request: double(request))
    assert world.source.conclusions[await world.one()].output == "2"


async def test_the_task_at_hand_is_known_below_the_handler() -> None:
    async def handler(request: TaskRequest) -> str:
        activity.heartbeat({"done": 1})
        assert not activity.cancelled()
        return activity.info().lease_id

    world = World(handler)
    token = await world.one()
    assert len(world.source.conclusions[token].output) == 34
    with pytest.raises(RuntimeError, match="no task runs here"):
        activity.info()


async def test_a_slow_thread_does_not_hold_the_loop() -> None:
    def handler(request: TaskRequest) -> None:
        time.sleep(0)
        released.wait(5)

    released = threading.Event()
    world = World(handler)
    await world.worker.start()
    token = world.source.put()
    world.recorder.emitter.on("task:start", lambda _: released.set())
    assert (await world.source.concluded(token)).result == "success"
    await world.worker.stop(abort_polls=True)
