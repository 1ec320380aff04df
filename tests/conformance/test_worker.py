"""The worker runtime on every Step Functions service keeps the same promises."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from activity_worker.activity import TaskRequest, TaskResponseToolkit
from activity_worker.events import EventEmitter
from activity_worker.runtime.options import TaskOptions
from activity_worker.runtime.slot import Slot
from activity_worker.sources.stepfunctions import StepFunctionsSource
from activity_worker.testing import StepFunctionsFake
from tests.conformance.services import Service


@contextlib.asynccontextmanager
async def working(service: Service, arn: str, handler: Callable[..., Any], **options: Any) -> AsyncIterator[Slot]:
    """Run one worker. Its last poll is cancelled at the end, because the emulators would hold it for a minute."""
    source = StepFunctionsSource(service.client, arn)
    worker = Slot(source, handler, events=EventEmitter(), options=TaskOptions(**options))
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop(abort_polls=True)


async def double(request: TaskRequest) -> dict[str, int]:
    """Return twice the number of the input."""
    return {"n": request.input["n"] * 2}


async def test_every_execution_succeeds_with_its_handlers_result(service: Service) -> None:
    arn = await service.activity()
    executions = [await service.execution(arn, json.dumps({"n": number})) for number in range(3)]

    async with working(service, arn, double):
        ended = [await service.ended(execution) for execution in executions]

    assert [description["status"] for description in ended] == ["SUCCEEDED"] * 3
    assert [json.loads(description["output"]) for description in ended] == [{"n": 0}, {"n": 2}, {"n": 4}]


async def test_exception_fails_the_execution_with_its_class_name(service: Service) -> None:
    async def broken(request: TaskRequest) -> None:
        raise LookupError("nothing there")

    arn = await service.activity()
    execution = await service.execution(arn)

    async with working(service, arn, broken):
        description = await service.ended(execution)

    assert (description["status"], description["error"]) == ("FAILED", "LookupError")
    assert "nothing there" in description["cause"]


async def test_failed_task_succeeds_by_the_retry_of_its_state(service: Service) -> None:
    tries: list[int] = []

    async def second_time_lucky(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        tries.append(1)
        if len(tries) == 1:
            await respond.failure("NotYet", "")
        else:
            await respond.success({})

    arn = await service.activity()
    execution = await service.execution(arn, Retry=[{"ErrorEquals": ["NotYet"], "IntervalSeconds": 1}])

    async with working(service, arn, second_time_lucky):
        description = await service.ended(execution)

    assert (description["status"], len(tries)) == ("SUCCEEDED", 2)


async def test_heartbeats_keep_a_task_beyond_its_heartbeat_seconds(service: Service) -> None:
    async def slow(request: TaskRequest) -> str:
        await asyncio.sleep(8)  # longer than the state's HeartbeatSeconds, in the service's own clock
        return "done"

    arn = await service.activity()
    execution = await service.execution(arn, HeartbeatSeconds=6)

    async with working(service, arn, slow, heartbeat_seconds=1.0):
        description = await service.ended(execution, within_seconds=30)

    assert description["status"] == "SUCCEEDED"


async def test_invalid_token_cancels_the_handler() -> None:
    """On the fake alone: no emulator answers a heartbeat with TaskTimedOut."""
    cancelled = asyncio.Event()

    async def patient(request: TaskRequest) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with StepFunctionsFake() as fake, Service("fake", fake.url) as service:
        arn = await service.activity()
        execution = await service.execution(arn)
        async with working(service, arn, patient, heartbeat_seconds=0.05):
            await fake.until(lambda: fake.counts.get("heartbeats", 0) > 0)
            await service.call("StopExecution", executionArn=execution)
            await asyncio.wait_for(cancelled.wait(), 10)

    (task,) = fake.tasks
    assert (task.state, task.conclusions) == ("aborted", 0)
