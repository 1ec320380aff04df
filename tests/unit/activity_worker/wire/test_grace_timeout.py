"""A time-out with a grace for data that arrived during a standstill, and the caller's own cancellation."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from activity_worker.wire.grace_timeout import GRACE_SECONDS, GraceTimeout
from tests.unit.activity_operator.virtual_time import VirtualLoop

LIMIT = 70.0


def in_virtual_time(exchange: Callable[[VirtualLoop], Awaitable[None]]) -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await exchange(loop)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(play())


async def within_limit(answer: Awaitable[str]) -> str:
    with GraceTimeout(LIMIT):
        return await answer


def stand_still(loop: VirtualLoop, seconds: float) -> None:
    """Let time pass while the loop runs nothing."""
    loop.elapsed += seconds


def test_missing_answer_times_out_after_limit_and_grace() -> None:
    async def exchange(loop: VirtualLoop) -> None:
        with pytest.raises(TimeoutError):
            await within_limit(loop.create_future())

        assert loop.time() == pytest.approx(LIMIT + GRACE_SECONDS)

    in_virtual_time(exchange)


def test_answer_after_a_standstill_past_the_limit_is_accepted() -> None:
    async def exchange(loop: VirtualLoop) -> None:
        answer: asyncio.Future[str] = loop.create_future()
        loop.call_at(LIMIT - 1, stand_still, loop, 600)
        loop.call_at(LIMIT + 599 + GRACE_SECONDS / 2, answer.set_result, "a task")

        assert await within_limit(answer) == "a task"

    in_virtual_time(exchange)


def test_standstill_within_the_grace_starts_another_grace() -> None:
    async def exchange(loop: VirtualLoop) -> None:
        answer: asyncio.Future[str] = loop.create_future()
        loop.call_at(LIMIT + GRACE_SECONDS / 2, stand_still, loop, 600)
        loop.call_at(LIMIT + 600 + GRACE_SECONDS, answer.set_result, "a task")

        assert await within_limit(answer) == "a task"

    in_virtual_time(exchange)


def test_standstill_does_not_prevent_the_timeout() -> None:
    async def exchange(loop: VirtualLoop) -> None:
        loop.call_at(LIMIT - 1, stand_still, loop, 600)

        with pytest.raises(TimeoutError):
            await within_limit(loop.create_future())

        assert loop.time() == pytest.approx(LIMIT + 599 + GRACE_SECONDS)

    in_virtual_time(exchange)


@pytest.mark.parametrize("at", [1.0, LIMIT + GRACE_SECONDS / 2], ids=["before the limit", "in the grace"])
def test_cancellation_by_the_caller_is_not_a_timeout(at: float) -> None:
    async def exchange(loop: VirtualLoop) -> None:
        call = loop.create_task(within_limit(loop.create_future()))
        loop.call_at(at, call.cancel)

        await asyncio.wait({call})

        assert call.cancelled()
        assert loop.time() == pytest.approx(at)

    in_virtual_time(exchange)


def test_cancellation_at_the_end_of_the_grace_is_not_a_timeout() -> None:
    async def exchange(loop: VirtualLoop) -> None:
        call = loop.create_task(within_limit(loop.create_future()))
        await asyncio.sleep(LIMIT)
        loop.call_at(LIMIT + GRACE_SECONDS, call.cancel)

        await asyncio.wait({call})

        assert call.cancelled()

    in_virtual_time(exchange)


def test_nothing_is_cancelled_after_the_answer() -> None:
    async def exchange(loop: VirtualLoop) -> None:
        answer: asyncio.Future[str] = loop.create_future()
        answer.set_result("a task")
        assert await within_limit(answer) == "a task"

        await asyncio.sleep(2 * LIMIT)

    in_virtual_time(exchange)


def test_task_can_be_used_again_after_a_timeout() -> None:
    async def exchange(loop: VirtualLoop) -> None:
        with pytest.raises(TimeoutError):
            await within_limit(loop.create_future())
        task = asyncio.current_task()

        assert task is not None
        assert task.cancelling() == 0
        with pytest.raises(TimeoutError):
            await within_limit(loop.create_future())

    in_virtual_time(exchange)
