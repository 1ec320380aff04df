"""A limit, a grace to read what came while the process stood still, and whose cancellation it was."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from activity_worker.wire.patience import GRACE_SECONDS, Patience
from tests.unit.activity_operator.virtual_time import VirtualLoop

LIMIT = 70.0


def in_virtual_time(scene: Callable[[VirtualLoop], Awaitable[None]]) -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await scene(loop)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(play())


async def within_limit(answer: Awaitable[str]) -> str:
    with Patience(LIMIT):
        return await answer


def stand_still(loop: VirtualLoop, seconds: float) -> None:
    """Let time pass in which nothing runs."""
    loop.elapsed += seconds


def test_what_never_comes_ends_with_the_grace() -> None:
    async def scene(loop: VirtualLoop) -> None:
        with pytest.raises(TimeoutError):
            await within_limit(loop.create_future())

        assert loop.time() == pytest.approx(LIMIT + GRACE_SECONDS)

    in_virtual_time(scene)


def test_what_comes_after_a_standstill_past_the_limit_is_taken() -> None:
    async def scene(loop: VirtualLoop) -> None:
        answer: asyncio.Future[str] = loop.create_future()
        loop.call_at(LIMIT - 1, stand_still, loop, 600)
        loop.call_at(LIMIT + 599 + GRACE_SECONDS / 2, answer.set_result, "a task")

        assert await within_limit(answer) == "a task"

    in_virtual_time(scene)


def test_a_standstill_within_the_grace_brings_another_grace() -> None:
    async def scene(loop: VirtualLoop) -> None:
        answer: asyncio.Future[str] = loop.create_future()
        loop.call_at(LIMIT + GRACE_SECONDS / 2, stand_still, loop, 600)
        loop.call_at(LIMIT + 600 + GRACE_SECONDS, answer.set_result, "a task")

        assert await within_limit(answer) == "a task"

    in_virtual_time(scene)


def test_a_standstill_does_not_make_it_wait_for_ever() -> None:
    async def scene(loop: VirtualLoop) -> None:
        loop.call_at(LIMIT - 1, stand_still, loop, 600)

        with pytest.raises(TimeoutError):
            await within_limit(loop.create_future())

        assert loop.time() == pytest.approx(LIMIT + 599 + GRACE_SECONDS)

    in_virtual_time(scene)


@pytest.mark.parametrize("at", [1.0, LIMIT + GRACE_SECONDS / 2], ids=["before the limit", "in the grace"])
def test_the_callers_cancellation_is_no_time_out(at: float) -> None:
    async def scene(loop: VirtualLoop) -> None:
        call = loop.create_task(within_limit(loop.create_future()))
        loop.call_at(at, call.cancel)

        await asyncio.wait({call})

        assert call.cancelled()
        assert loop.time() == pytest.approx(at)

    in_virtual_time(scene)


def test_a_cancellation_at_the_very_end_still_is_one() -> None:
    async def scene(loop: VirtualLoop) -> None:
        call = loop.create_task(within_limit(loop.create_future()))
        await asyncio.sleep(LIMIT)
        loop.call_at(LIMIT + GRACE_SECONDS, call.cancel)

        await asyncio.wait({call})

        assert call.cancelled()

    in_virtual_time(scene)


def test_after_the_end_nothing_is_cancelled_any_more() -> None:
    async def scene(loop: VirtualLoop) -> None:
        answer: asyncio.Future[str] = loop.create_future()
        answer.set_result("a task")
        assert await within_limit(answer) == "a task"

        await asyncio.sleep(2 * LIMIT)

    in_virtual_time(scene)


def test_a_task_that_ran_into_its_limit_can_be_cancelled_as_any_other() -> None:
    async def scene(loop: VirtualLoop) -> None:
        with pytest.raises(TimeoutError):
            await within_limit(loop.create_future())
        task = asyncio.current_task()

        assert task is not None
        assert task.cancelling() == 0
        with pytest.raises(TimeoutError):
            await within_limit(loop.create_future())

    in_virtual_time(scene)
