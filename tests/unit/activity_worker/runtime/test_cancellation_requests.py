"""A task whose cancellation is requested: the handler is asked to end, and what it does then counts."""

import asyncio

import pytest

from activity_worker import activity
from activity_worker.activity import BlockingToolkit, TaskRequest, TaskResponseToolkit
from activity_worker.errors import CancellationNotRequestedError, TaskCancelled
from activity_worker.runtime.cancellation import CancellationSignal, CancelReason
from activity_worker.runtime.context import current_context
from activity_worker.sources.memory import Conclusion
from tests.unit.activity_worker.runtime.recorded_worker import RecordedWorker


async def ended(recorded: RecordedWorker) -> Conclusion:
    """Run one task, ask for its cancellation when its handler runs, and return its conclusion."""
    token = recorded.source.put("null")
    recorded.source.request_cancel(token)
    assert await recorded.worker.run_once()
    return recorded.source.conclusions[token]


async def for_ever(request: TaskRequest) -> None:
    await asyncio.Event().wait()


async def test_coroutine_is_cancelled_and_its_task_with_it() -> None:
    recorded = RecordedWorker(for_ever)

    assert await ended(recorded) == Conclusion("cancelled")

    assert recorded.recorder.tasks() == ["task:received", "task:start", "task:heartbeat", "task:errored", "task:done"]
    _, response = recorded.recorder.payload("task:done")
    assert response.result == "cancelled"


async def test_cancelled_task_carries_the_details_that_the_handler_gave() -> None:
    async def careful(request: TaskRequest) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise TaskCancelled("stopped after 3 of 5 files") from None

    assert await ended(RecordedWorker(careful)) == Conclusion("cancelled", cause="stopped after 3 of 5 files")


async def test_cancelled_task_without_details_carries_the_last_progress() -> None:
    async def telling(request: TaskRequest) -> None:
        activity.heartbeat({"files": 3})
        await asyncio.Event().wait()

    assert await ended(RecordedWorker(telling)) == Conclusion("cancelled", cause='{"files":3}')


async def test_handler_may_finish_its_work_despite_the_request() -> None:
    async def stubborn(request: TaskRequest) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)
        return "done"

    recorded = RecordedWorker(stubborn)

    assert await ended(recorded) == Conclusion("success", output='"done"')
    assert recorded.recorder.tasks()[-2:] == ["task:success", "task:done"]


async def test_handler_that_fails_after_the_request_fails_its_task() -> None:
    async def broken(request: TaskRequest) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise LookupError("nothing to undo") from None

    conclusion = await ended(RecordedWorker(broken))

    assert (conclusion.result, conclusion.error) == ("failure", "LookupError")


async def test_handler_may_confirm_through_the_toolkit() -> None:
    async def confirming(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await respond.confirm_cancellation("undone")

    recorded = RecordedWorker(confirming)

    assert await ended(recorded) == Conclusion("cancelled", cause="undone")
    assert "task:errored" not in recorded.recorder.tasks()


async def test_confirmation_without_a_request_is_an_error() -> None:
    async def hasty(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.confirm_cancellation()

    recorded = RecordedWorker(hasty)
    token = await recorded.one()

    assert isinstance(recorded.recorder.payload("task:errored")[1], CancellationNotRequestedError)
    assert recorded.source.conclusions[token].result == "failure"


async def test_task_cancelled_without_a_request_is_a_failure() -> None:
    async def hasty(request: TaskRequest) -> None:
        raise TaskCancelled("why not")

    recorded = RecordedWorker(hasty)
    token = await recorded.one()

    assert (recorded.source.conclusions[token].result, recorded.source.conclusions[token].error) == (
        "failure",
        "TaskCancelled",
    )


async def test_heartbeats_go_on_while_a_cancelled_handler_finishes() -> None:
    async def slow(request: TaskRequest) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(35)
            raise

    recorded = RecordedWorker(slow, heartbeat_seconds=10)

    await ended(recorded)

    assert len(recorded.source.heartbeats) == 4


async def test_deadline_ends_a_handler_that_ignores_the_request() -> None:
    async def deaf(request: TaskRequest) -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if current_context().signal.must_end:
                    raise

    conclusion = await ended(RecordedWorker(deaf, deadline_seconds=30))

    assert (conclusion.result, conclusion.error) == ("failure", "ActivityPool.DeadlineExceeded")


async def test_lost_lease_after_the_request_ends_the_handler_without_an_answer() -> None:
    recorded = RecordedWorker(for_ever_twice)
    token = recorded.source.put("null")
    recorded.source.request_cancel(token)
    running = asyncio.create_task(recorded.worker.run_once())
    await asyncio.sleep(15)
    recorded.source.expire(token)

    await running

    assert token not in recorded.source.conclusions


async def for_ever_twice(request: TaskRequest) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.Event().wait()


async def test_heartbeats_carry_the_handlers_last_details() -> None:
    async def telling(request: TaskRequest) -> None:
        for share in (40, 80):
            activity.heartbeat(f"{share} %")
            await asyncio.sleep(2)

    recorded = RecordedWorker(telling)
    token = await recorded.one()

    assert recorded.source.details[token] == "80 %"


async def test_long_details_are_trimmed_and_say_so() -> None:
    async def talkative(request: TaskRequest) -> None:
        activity.heartbeat("x" * 5000)
        await asyncio.sleep(2)

    recorded = RecordedWorker(talkative)
    token = await recorded.one()

    assert len(recorded.source.details[token]) <= 2048
    assert "trimmed" in recorded.source.details[token]


def test_request_gives_way_to_a_reason_that_must_end_the_handler() -> None:
    signal = CancellationSignal()
    calls: list[CancelReason | None] = []
    signal.on_cancel(lambda: calls.append(signal.reason))

    assert signal.cancel(CancelReason.REQUESTED)
    assert not signal.cancel(CancelReason.REQUESTED)
    assert (signal.cancelled, signal.must_end) == (True, False)
    assert signal.cancel(CancelReason.DEADLINE)
    assert not signal.cancel(CancelReason.LEASE_LOST)
    assert not signal.cancel(CancelReason.REQUESTED)

    assert calls == [CancelReason.REQUESTED, CancelReason.DEADLINE]
    assert signal.must_end


@pytest.mark.parametrize("waits", [True, False])
async def test_plain_function_sees_the_request_and_its_end_counts(waits: bool) -> None:
    def plain(request: TaskRequest, respond: BlockingToolkit) -> None:
        respond.signal.wait()
        if waits:
            raise TaskCancelled("seen")
        respond.success("finished all the same")

    conclusion = await ended(RecordedWorker(plain, heartbeat_seconds=0.1))

    assert conclusion == (
        Conclusion("cancelled", cause="seen") if waits else Conclusion("success", output='"finished all the same"')
    )
