"""Handlers that are plain functions run in a thread per slot; these tests run in real time."""

import threading
from typing import Any

import pytest

from activity_worker import activity
from activity_worker.activity import TaskRequest
from activity_worker.errors import LeaseLostError
from activity_worker.runtime.blocking import BlockingToolkit
from tests.unit.activity_worker.runtime.recorded_worker import RecordedWorker


async def test_plain_function_runs_in_a_thread_of_its_own() -> None:
    observed: list[Any] = []

    def handler(request: TaskRequest) -> int:
        observed.append((threading.current_thread() is threading.main_thread(), activity.info() is request))
        return 1

    recorded = RecordedWorker(handler)
    assert recorded.source.conclusions[await recorded.one()].output == "1"
    assert observed == [(False, True)]


async def test_plain_function_with_two_parameters_answers_without_await() -> None:
    def handler(request: TaskRequest, respond: BlockingToolkit) -> None:
        respond.heartbeat("half")
        respond.success("done")
        assert respond.response is not None
        assert respond.response.output == "done"

    recorded = RecordedWorker(handler)
    assert recorded.source.conclusions[await recorded.one()].output == '"done"'
    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:heartbeat", "task:success", "task:done"]


async def test_plain_function_can_wait_for_its_cancellation() -> None:
    def handler(request: TaskRequest, respond: BlockingToolkit) -> None:
        assert respond.signal.wait(60)
        raise RuntimeError(f"ending: {respond.signal.reason}")

    recorded = RecordedWorker(handler, deadline_seconds=0.05)
    failure = recorded.source.conclusions[await recorded.one()]
    assert failure.error == "ActivityPool.DeadlineExceeded"


async def test_slow_thread_does_not_hold_the_loop() -> None:
    def handler(request: TaskRequest) -> None:
        released.wait(5)

    released = threading.Event()
    recorded = RecordedWorker(handler)
    await recorded.worker.start()
    token = recorded.source.put()
    recorded.recorder.emitter.on("task:start", lambda _: released.set())
    assert (await recorded.source.concluded(token)).result == "success"
    await recorded.worker.stop(abort_polls=True)


async def test_heartbeat_on_a_lost_lease_raises_the_error_of_the_service() -> None:
    observed: list[Any] = []

    def handler(request: TaskRequest, respond: BlockingToolkit) -> None:
        try:
            respond.heartbeat()
        except LeaseLostError as error:
            observed.extend([error.code, respond.signal.cancelled])

    recorded = RecordedWorker(handler)
    recorded.source.refuse("heartbeat", LeaseLostError("TaskTimedOut"))
    await recorded.one()
    assert observed == ["TaskTimedOut", True]
    assert recorded.source.conclusions == {}


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, StopIteration])
async def test_handler_that_raises_system_exit_only_fails_its_task(kind: type[BaseException]) -> None:
    def handler(request: TaskRequest) -> None:
        if request.input == 1:
            raise kind

    recorded = RecordedWorker(handler)
    await recorded.worker.start()
    first, second = recorded.source.put("1"), recorded.source.put("2")
    assert (await recorded.source.concluded(first)).error in {kind.__name__, "RuntimeError"}
    assert (await recorded.source.concluded(second)).result == "success"
    await recorded.worker.stop(abort_polls=True)
