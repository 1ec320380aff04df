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
from tests.unit.activity_worker.runtime.recorded_worker import RecordedWorker, double


async def nap(request: TaskRequest) -> str:
    await asyncio.sleep(request.input)
    return "rested"


async def test_heartbeats_are_sent_at_the_interval() -> None:
    recorded = RecordedWorker(nap, heartbeat_seconds=10)
    times: list[float] = []
    recorded.recorder.emitter.on("task:heartbeat", lambda _: times.append(elapsed()))
    await recorded.one("35")
    assert times == [10, 20, 30]


async def test_first_heartbeats_of_tasks_leased_together_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EARLY_SHARE", 0.5)
    workers = [RecordedWorker(nap, heartbeat_seconds=10) for _ in range(40)]
    times: list[float] = []
    for recorded in workers:
        recorded.recorder.emitter.on("task:heartbeat", lambda _: times.append(elapsed()))
    await asyncio.gather(*(recorded.one("10") for recorded in workers))
    assert len(times) == 40
    assert all(5 <= at <= 10 for at in times)
    assert max(times) - min(times) > 2


async def test_task_shorter_than_the_interval_sends_no_heartbeat() -> None:
    recorded = RecordedWorker(nap, heartbeat_seconds=10)
    await recorded.one("9.9")
    assert recorded.source.heartbeats == []


@pytest.mark.parametrize("code", ["TaskTimedOut", "TaskDoesNotExist"])
async def test_expired_token_cancels_the_handler(code: str) -> None:
    observed: list[Any] = []

    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            observed.extend([elapsed(), respond.signal.reason, respond.signal.detail, await respond.signal.wait()])
            raise

    recorded = RecordedWorker(handler, heartbeat_seconds=10)
    recorded.source.refuse("heartbeat", LeaseLostError(code, "gone"))
    await recorded.one()
    assert observed == [10, CancelReason.LEASE_LOST, f"{code}: gone", CancelReason.LEASE_LOST]
    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:errored", "task:done"]
    error = recorded.recorder.payload("task:errored")[1]
    assert isinstance(error, TaskCancelledError)
    assert code in str(error)
    assert recorded.worker.counters.task_heartbeat_failures == 1


async def test_invalid_token_ends_only_the_heartbeats() -> None:
    recorded = RecordedWorker(nap, heartbeat_seconds=10)
    recorded.source.refuse("heartbeat", InvalidTokenError("InvalidToken"))
    token = await recorded.one("100")
    assert recorded.source.heartbeats == []
    assert recorded.source.conclusions[token].result == "success"


@pytest.mark.parametrize("error", [ThrottledError("Throttled"), UnreachableError("ReadTimeout"), DeniedError("Denied")])
async def test_failed_heartbeat_is_retried_before_the_next_is_due(error: Exception) -> None:
    recorded = RecordedWorker(nap, heartbeat_seconds=10)
    times: list[float] = []
    recorded.recorder.emitter.on("task:heartbeat", lambda _: times.append(elapsed()))
    recorded.source.refuse("heartbeat", error, error)  # type: ignore[arg-type]
    await recorded.one("14")
    assert times == [11.5]
    assert recorded.worker.counters.task_heartbeat_failures == 2


async def test_heartbeat_without_an_answer_does_not_block_the_next() -> None:
    recorded = RecordedWorker(nap, heartbeat_seconds=10)
    calls: list[float] = []

    async def silent(token: str, details: str) -> bool:
        calls.append(elapsed())
        await asyncio.sleep(3600)
        return False

    recorded.source.heartbeat_with = silent  # type: ignore[method-assign]
    await recorded.one("45")
    assert len(calls) >= 3
    assert calls[0] == 10


async def test_frequent_heartbeats_of_a_handler_are_throttled() -> None:
    async def handler(request: TaskRequest) -> None:
        for number in range(1000):
            activity.heartbeat(number)
            await asyncio.sleep(0.01)

    recorded = RecordedWorker(handler, heartbeat_seconds=60)
    await recorded.one()
    assert 9 <= len(recorded.source.heartbeats) <= 11


async def test_progress_has_the_last_details_and_the_count() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.heartbeat({"rows": 10})
        await respond.heartbeat()
        assert respond.progress is not None
        assert (respond.progress.count, respond.progress.details) == (2, {"rows": 10})
        await respond.success()

    await RecordedWorker(handler).one()


async def test_explicit_heartbeat_on_a_lost_lease_cancels_the_handler() -> None:
    observed: list[Any] = []

    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        try:
            await respond.heartbeat()
        except asyncio.CancelledError:
            observed.append(respond.signal.reason)
            raise

    recorded = RecordedWorker(handler)
    recorded.source.refuse("heartbeat", LeaseLostError("TaskTimedOut"))
    await recorded.one()
    assert observed == [CancelReason.LEASE_LOST]
    assert recorded.source.conclusions == {}


@pytest.mark.parametrize("on_error", ["fail", "leave"])
async def test_deadline_cancels_the_handler_and_fails_the_task(on_error: str) -> None:
    recorded = RecordedWorker(nap, deadline_seconds=30, on_error=on_error)
    token = await recorded.one("3600")
    assert elapsed() == 30
    assert recorded.source.conclusions[token].error == "ActivityPool.DeadlineExceeded"
    assert "longer than 30 s" in recorded.source.conclusions[token].cause
    assert recorded.recorder.tasks()[-3:] == ["task:errored", "task:failure", "task:done"]


async def test_handler_that_ignores_cancellation_keeps_its_slot_not_its_task() -> None:
    async def handler(request: TaskRequest) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(100)

    recorded = RecordedWorker(handler, deadline_seconds=30, cancel_grace_seconds=5, heartbeat_seconds=999)
    failed: list[float] = []
    recorded.recorder.emitter.on("task:failure", lambda *_: failed.append(elapsed()))
    await recorded.one()
    assert failed == [35]
    assert elapsed() == 130
    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:errored", "task:failure", "task:done"]


async def test_deadline_does_not_interrupt_a_conclusion_in_progress() -> None:
    async def slow(token: str, output: str) -> None:
        await asyncio.sleep(10)
        await quick(token, output)

    recorded = RecordedWorker(nap, deadline_seconds=30)
    quick = recorded.source.succeed
    recorded.source.succeed = slow  # type: ignore[method-assign]
    token = await recorded.one("29")
    assert recorded.source.conclusions[token].result == "success"
    assert recorded.recorder.tasks()[-2:] == ["task:success", "task:done"]


async def test_cancellation_of_one_task_does_not_affect_the_next() -> None:
    recorded = RecordedWorker(nap, deadline_seconds=30)
    await recorded.worker.start()
    first, second = recorded.source.put("3600"), recorded.source.put("20")
    assert (await recorded.source.concluded(first)).result == "failure"
    assert (await recorded.source.concluded(second)).result == "success"
    await recorded.worker.stop()


@pytest.mark.parametrize("error", [ThrottledError("Throttled"), UnreachableError("ReadTimeout"), DeniedError("Denied")])
@pytest.mark.parametrize("call", ["succeed", "fail"])
async def test_conclusion_is_retried_until_it_is_accepted(call: Any, error: Any) -> None:
    async def handler(request: TaskRequest) -> None:
        if call == "fail":
            raise ValueError

    recorded = RecordedWorker(handler, heartbeat_seconds=10)
    recorded.source.refuse(call, *[error] * 8)
    token = await recorded.one()
    assert recorded.source.conclusions[token].result == ("success" if call == "succeed" else "failure")
    assert recorded.source.heartbeats, "heartbeats must continue while the conclusion is retried"


async def test_conclusion_is_given_up_when_the_task_is_over() -> None:
    recorded = RecordedWorker(double, heartbeat_seconds=10)
    recorded.source.refuse("succeed", *[UnreachableError("Down")] * 1000)
    recorded.source.refuse("heartbeat", LeaseLostError("TaskTimedOut"))
    await recorded.one()
    assert elapsed() < 60
    assert recorded.recorder.tasks()[-2:] == ["task:errored", "task:done"]


async def test_conclusion_is_given_up_after_its_time_limit() -> None:
    recorded = RecordedWorker(double, conclude_for_seconds=600, heartbeat_seconds=999)
    recorded.source.refuse("succeed", *[UnreachableError("Down")] * 1000)
    recorded.source.refuse("fail", *[UnreachableError("Down")] * 1000)
    await recorded.one()
    assert 500 < elapsed() <= 600
    assert recorded.recorder.tasks()[-2:] == ["task:errored", "task:done"]
    assert recorded.recorder.payload("task:done")[1] is None


async def test_cancellation_of_the_worker_does_not_fail_its_task() -> None:
    recorded = RecordedWorker(nap)
    await recorded.worker.start()
    recorded.source.put("3600")
    await asyncio.sleep(1)
    main = recorded.worker._main
    assert main is not None
    main.cancel()
    await asyncio.wait((main,))
    assert main.cancelled()
    assert recorded.source.conclusions == {}
    assert recorded.recorder.names[-3:] == ["worker:error", "worker:stopping", "worker:stopped"]
