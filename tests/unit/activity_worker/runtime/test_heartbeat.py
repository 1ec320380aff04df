"""Task heartbeats, cancellation, the deadline, and conclusions that are retried."""

import asyncio
from typing import Any

import pytest

from activity_worker import activity
from activity_worker.activity import TaskRequest, TaskResponseToolkit
from activity_worker.errors import (
    DeniedError,
    InvalidTokenError,
    LeaseLostError,
    TaskCancelledError,
    ThrottledError,
    UnreachableError,
)
from activity_worker.runtime import heartbeat
from activity_worker.runtime.cancellation import CancelReason
from tests.unit.activity_operator.virtual_time import elapsed
from tests.unit.activity_worker.runtime.world import World, double


async def nap(request: TaskRequest) -> str:
    await asyncio.sleep(request.input)
    return "rested"


async def test_heartbeats_are_sent_at_the_interval() -> None:
    world = World(nap, heartbeat_seconds=10)
    times: list[float] = []
    world.recorder.emitter.on("task:heartbeat", lambda _: times.append(elapsed()))
    await world.one("35")
    assert times == [10, 20, 30]


async def test_first_heartbeats_of_tasks_leased_together_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EARLY_SHARE", 0.5)
    worlds = [World(nap, heartbeat_seconds=10) for _ in range(40)]
    times: list[float] = []
    for world in worlds:
        world.recorder.emitter.on("task:heartbeat", lambda _: times.append(elapsed()))
    await asyncio.gather(*(world.one("10") for world in worlds))
    assert len(times) == 40
    assert all(5 <= at <= 10 for at in times)
    assert max(times) - min(times) > 2


async def test_task_shorter_than_the_interval_sends_no_heartbeat() -> None:
    world = World(nap, heartbeat_seconds=10)
    await world.one("9.9")
    assert world.source.heartbeats == []


@pytest.mark.parametrize("code", ["TaskTimedOut", "TaskDoesNotExist"])
async def test_expired_token_cancels_the_handler(code: str) -> None:
    observed: list[Any] = []

    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            observed.extend([elapsed(), respond.signal.reason, respond.signal.detail, await respond.signal.wait()])
            raise

    world = World(handler, heartbeat_seconds=10)
    world.source.refuse("heartbeat", LeaseLostError(code, "gone"))
    await world.one()
    assert observed == [10, CancelReason.LEASE_LOST, f"{code}: gone", CancelReason.LEASE_LOST]
    assert world.recorder.tasks() == ["task:received", "task:start", "task:errored", "task:done"]
    error = world.recorder.payload("task:errored")[1]
    assert isinstance(error, TaskCancelledError)
    assert code in str(error)
    assert world.worker.counters.task_heartbeat_failures == 1


async def test_invalid_token_ends_only_the_heartbeats() -> None:
    world = World(nap, heartbeat_seconds=10)
    world.source.refuse("heartbeat", InvalidTokenError("InvalidToken"))
    token = await world.one("100")
    assert world.source.heartbeats == []
    assert world.source.conclusions[token].result == "success"


@pytest.mark.parametrize("error", [ThrottledError("Throttled"), UnreachableError("ReadTimeout"), DeniedError("Denied")])
async def test_failed_heartbeat_is_retried_before_the_next_is_due(error: Exception) -> None:
    world = World(nap, heartbeat_seconds=10)
    times: list[float] = []
    world.recorder.emitter.on("task:heartbeat", lambda _: times.append(elapsed()))
    world.source.refuse("heartbeat", error, error)  # type: ignore[arg-type]
    await world.one("14")
    assert times == [11.5]
    assert world.worker.counters.task_heartbeat_failures == 2


async def test_heartbeat_without_an_answer_does_not_block_the_next() -> None:
    world = World(nap, heartbeat_seconds=10)
    calls: list[float] = []

    async def silent(token: str, details: str) -> bool:
        calls.append(elapsed())
        await asyncio.sleep(3600)
        return False

    world.source.heartbeat_with = silent  # type: ignore[method-assign]
    await world.one("45")
    assert len(calls) >= 3
    assert calls[0] == 10


async def test_frequent_heartbeats_of_a_handler_are_throttled() -> None:
    async def handler(request: TaskRequest) -> None:
        for number in range(1000):
            activity.heartbeat(number)
            await asyncio.sleep(0.01)

    world = World(handler, heartbeat_seconds=60)
    await world.one()
    assert 9 <= len(world.source.heartbeats) <= 11


async def test_progress_has_the_last_details_and_the_count() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.heartbeat({"rows": 10})
        await respond.heartbeat()
        assert respond.progress is not None
        assert (respond.progress.count, respond.progress.details) == (2, {"rows": 10})
        await respond.success()

    await World(handler).one()


async def test_explicit_heartbeat_on_a_lost_lease_cancels_the_handler() -> None:
    observed: list[Any] = []

    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        try:
            await respond.heartbeat()
        except asyncio.CancelledError:
            observed.append(respond.signal.reason)
            raise

    world = World(handler)
    world.source.refuse("heartbeat", LeaseLostError("TaskTimedOut"))
    await world.one()
    assert observed == [CancelReason.LEASE_LOST]
    assert world.source.conclusions == {}


@pytest.mark.parametrize("on_error", ["fail", "leave"])
async def test_deadline_cancels_the_handler_and_fails_the_task(on_error: str) -> None:
    world = World(nap, deadline_seconds=30, on_error=on_error)
    token = await world.one("3600")
    assert elapsed() == 30
    assert world.source.conclusions[token].error == "ActivityPool.DeadlineExceeded"
    assert "longer than 30 s" in world.source.conclusions[token].cause
    assert world.recorder.tasks()[-3:] == ["task:errored", "task:failure", "task:done"]


async def test_handler_that_ignores_cancellation_keeps_its_slot_not_its_task() -> None:
    async def handler(request: TaskRequest) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(100)

    world = World(handler, deadline_seconds=30, cancel_grace_seconds=5, heartbeat_seconds=999)
    failed: list[float] = []
    world.recorder.emitter.on("task:failure", lambda *_: failed.append(elapsed()))
    await world.one()
    assert failed == [35]
    assert elapsed() == 130
    assert world.recorder.tasks() == ["task:received", "task:start", "task:errored", "task:failure", "task:done"]


async def test_deadline_does_not_interrupt_a_conclusion_in_progress() -> None:
    async def slow(token: str, output: str) -> None:
        await asyncio.sleep(10)
        await quick(token, output)

    world = World(nap, deadline_seconds=30)
    quick = world.source.succeed
    world.source.succeed = slow  # type: ignore[method-assign]
    token = await world.one("29")
    assert world.source.conclusions[token].result == "success"
    assert world.recorder.tasks()[-2:] == ["task:success", "task:done"]


async def test_cancellation_of_one_task_does_not_affect_the_next() -> None:
    world = World(nap, deadline_seconds=30)
    await world.worker.start()
    first, second = world.source.put("3600"), world.source.put("20")
    assert (await world.source.concluded(first)).result == "failure"
    assert (await world.source.concluded(second)).result == "success"
    await world.worker.stop()


@pytest.mark.parametrize("error", [ThrottledError("Throttled"), UnreachableError("ReadTimeout"), DeniedError("Denied")])
@pytest.mark.parametrize("call", ["succeed", "fail"])
async def test_conclusion_is_retried_until_it_is_accepted(call: Any, error: Any) -> None:
    async def handler(request: TaskRequest) -> None:
        if call == "fail":
            raise ValueError

    world = World(handler, heartbeat_seconds=10)
    world.source.refuse(call, *[error] * 8)
    token = await world.one()
    assert world.source.conclusions[token].result == ("success" if call == "succeed" else "failure")
    assert world.source.heartbeats, "heartbeats must continue while the conclusion is retried"


async def test_conclusion_is_given_up_when_the_task_is_over() -> None:
    world = World(double, heartbeat_seconds=10)
    world.source.refuse("succeed", *[UnreachableError("Down")] * 1000)
    world.source.refuse("heartbeat", LeaseLostError("TaskTimedOut"))
    await world.one()
    assert elapsed() < 60
    assert world.recorder.tasks()[-2:] == ["task:errored", "task:done"]


async def test_conclusion_is_given_up_after_its_time_limit() -> None:
    world = World(double, conclude_for_seconds=600, heartbeat_seconds=999)
    world.source.refuse("succeed", *[UnreachableError("Down")] * 1000)
    world.source.refuse("fail", *[UnreachableError("Down")] * 1000)
    await world.one()
    assert 500 < elapsed() <= 600
    assert world.recorder.tasks()[-2:] == ["task:errored", "task:done"]
    assert world.recorder.payload("task:done")[1] is None


async def test_cancellation_of_the_worker_does_not_fail_its_task() -> None:
    world = World(nap)
    await world.worker.start()
    world.source.put("3600")
    await asyncio.sleep(1)
    main = world.worker._main
    assert main is not None
    main.cancel()
    await asyncio.wait((main,))
    assert main.cancelled()
    assert world.source.conclusions == {}
    assert world.recorder.names[-3:] == ["worker:error", "worker:stopping", "worker:stopped"]
