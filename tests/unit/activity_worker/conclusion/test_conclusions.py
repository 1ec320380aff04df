"""Tasks are concluded from outside a worker: which calls are repeated, which refusals raise, how texts are cut."""

import asyncio

import pytest

from activity_worker.conclusion import Conclusions
from activity_worker.errors import (
    CancellationNotRequestedError,
    DeniedError,
    LeaseLostError,
    OutputNotJsonError,
    ThrottledError,
)
from activity_worker.sources.memory import Conclusion, MemorySource
from activity_worker.sources.stepfunctions import StepFunctionsSource
from activity_worker.wire.stepfunctions import StepFunctionsClient


async def leased(source: MemorySource) -> str:
    """Put a task, take it as a worker would, and return its token."""
    source.put("null")
    task = await source.lease("worker")
    assert task is not None
    return task.token


async def test_output_failure_and_cancellation_reach_the_service() -> None:
    source = MemorySource()
    succeeded, failed, cancelled = [await leased(source) for _ in range(3)]
    tasks = Conclusions(source)

    await tasks.succeed(succeeded, {"approved": True})
    await tasks.fail(failed, "Refused", "too late")
    source.request_cancel(cancelled)
    assert await tasks.heartbeat(cancelled, {"files": 3})
    await tasks.confirm_cancellation(cancelled, "undone")

    assert source.conclusions == {
        succeeded: Conclusion("success", output='{"approved":true}'),
        failed: Conclusion("failure", error="Refused", cause="too late"),
        cancelled: Conclusion("cancelled", cause="undone"),
    }
    assert source.details[cancelled] == '{"files":3}'


async def test_texts_over_the_limits_are_cut_to_them() -> None:
    source = MemorySource()
    failed, cancelled = [await leased(source) for _ in range(2)]
    tasks = Conclusions(source)

    await tasks.fail(failed, "é" * 200, "x" * 40_000)
    source.request_cancel(cancelled)
    await tasks.heartbeat(cancelled, "x" * 5_000)
    await tasks.confirm_cancellation(cancelled, "x" * 40_000)

    assert source.conclusions[failed].error == "é" * 128, "256 bytes of UTF-8"
    assert len(source.conclusions[failed].cause) <= 32_768
    assert len(source.details[cancelled]) <= 2_048
    assert len(source.conclusions[cancelled].cause) <= 32_768


async def test_throttled_conclusion_is_repeated_until_it_is_accepted() -> None:
    source = MemorySource()
    token = await leased(source)
    source.refuse("succeed", *[ThrottledError("ThrottlingException")] * 3)

    await Conclusions(source).succeed(token, 1)

    assert source.conclusions[token].output == "1"


async def test_throttled_conclusion_raises_after_its_time() -> None:
    source = MemorySource()
    token = await leased(source)
    source.refuse("succeed", *[ThrottledError("ThrottlingException")] * 1000)
    began = asyncio.get_running_loop().time()

    with pytest.raises(ThrottledError):
        await Conclusions(source, conclude_for_seconds=20).succeed(token, 1)

    assert asyncio.get_running_loop().time() - began <= 20


async def test_denied_conclusion_raises_at_once() -> None:
    source = MemorySource()
    token = await leased(source)
    source.refuse("fail", DeniedError("AccessDeniedException"))
    began = asyncio.get_running_loop().time()

    with pytest.raises(DeniedError):
        await Conclusions(source).fail(token, "Refused")

    assert asyncio.get_running_loop().time() == began
    assert token not in source.conclusions


async def test_second_conclusion_raises_that_the_lease_is_lost() -> None:
    source = MemorySource()
    token = await leased(source)
    await Conclusions(source).succeed(token)

    with pytest.raises(LeaseLostError):
        await Conclusions(source).fail(token, "Late")

    assert source.conclusions[token] == Conclusion("success", output="null")


async def test_output_that_is_no_json_is_not_sent() -> None:
    source = MemorySource()
    token = await leased(source)

    with pytest.raises(OutputNotJsonError):
        await Conclusions(source).succeed(token, object())

    assert token not in source.conclusions


async def test_step_functions_has_heartbeats_and_no_cancellation() -> None:
    calls: list[str] = []

    class Caller:
        async def call(self, operation: str, parameters: dict[str, object], **_: object) -> dict[str, object]:
            calls.append(operation)
            return {}

    client = StepFunctionsClient(Caller())  # type: ignore[arg-type]  # it is called like one
    tasks = Conclusions(StepFunctionsSource(client, ""))

    assert await tasks.heartbeat("one", "70 %") is False
    with pytest.raises(CancellationNotRequestedError, match="use fail instead"):
        await tasks.confirm_cancellation("one")

    assert calls == ["SendTaskHeartbeat"]
