"""A slot whose handler's process starts again polls when the process is ready, unless it has got a task meanwhile."""

import asyncio
from collections.abc import Callable

import pytest

from activity_worker.activity import TaskRequest, TaskResponseToolkit
from activity_worker.contract import LeasedTask
from activity_worker.runtime.slot import Slot
from activity_worker.sources.memory import MemorySource
from tests.unit.activity_operator.virtual_time import settle
from tests.unit.activity_worker.runtime.recorded_worker import Recorder

TASK_SECONDS = 1.0


class StartingRunner:
    """A runner whose process starts when `come` is set; a task runs for a second after that."""

    def __init__(self) -> None:
        self.come, self.hopeless = asyncio.Event(), asyncio.Event()
        self.running = self.most = self.waits = 0

    @property
    def ready(self) -> bool:
        return self.come.is_set()

    async def wait_ready(self) -> None:
        self.waits += 1
        if not self.hopeless.is_set():
            await self.come.wait()

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def run(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.come.wait()
        await asyncio.sleep(TASK_SECONDS)
        await respond.success(request.input)
        self.running -= 1


class WaitingSlot:
    """A slot that runs and waits for its handler."""

    def __init__(self) -> None:
        self.source, self.runner, self.recorder = MemorySource("arn:activity"), StartingRunner(), Recorder()
        self.slot = Slot(self.source, runner=self.runner, worker_name="w", events=self.recorder.emitter)

    async def start(self) -> None:
        await self.slot.start()
        await settle()

    def polls(self) -> int:
        return self.recorder.count("polling:starting")

    async def granted(self) -> LeasedTask:
        self.source.put("1")
        task = await self.source.lease("operator")
        assert task is not None
        return task


async def test_slot_polls_once_its_handler_is_ready() -> None:
    waiting = WaitingSlot()
    await waiting.start()
    assert not waiting.polls()
    waiting.runner.come.set()
    await settle()
    assert waiting.polls() == 1
    await waiting.slot.stop()


async def test_slot_with_a_granted_task_opens_no_poll_when_its_handler_is_ready() -> None:
    """Two tasks in one process: the messages of one were read by the other, which waited for ever."""
    waiting = WaitingSlot()
    await waiting.start()
    task = await waiting.granted()
    waiting.source.put("2")
    run = asyncio.create_task(waiting.slot.run_task(task))
    await settle()
    waiting.runner.come.set()
    await asyncio.sleep(TASK_SECONDS / 2)
    assert not waiting.polls()
    await run
    await asyncio.sleep(2 * TASK_SECONDS)
    assert waiting.recorder.count("task:success") == 2
    assert waiting.runner.most == 1
    await waiting.slot.stop()


@pytest.mark.parametrize(
    "hold_back",
    [Slot.reserve, Slot.cordon, lambda slot: setattr(slot, "stands_by", True)],
    ids=["reserved", "cordoned", "standing by"],
)
async def test_held_back_slot_opens_no_poll_when_its_handler_is_ready(hold_back: Callable[[Slot], object]) -> None:
    waiting = WaitingSlot()
    await waiting.start()
    hold_back(waiting.slot)
    waiting.runner.come.set()
    await settle()
    assert not waiting.polls()
    await waiting.slot.stop()


async def test_stop_waits_for_no_handler_without_a_task() -> None:
    waiting = WaitingSlot()
    await waiting.start()
    await waiting.slot.stop()
    assert not waiting.polls()


async def test_slot_that_is_woken_before_its_handler_is_ready_waits_again_once() -> None:
    """Each wait that was given up woke the next one, so the loop was busy until the process was there."""
    waiting = WaitingSlot()
    await waiting.start()
    waiting.slot.uncordon()
    await settle()
    assert waiting.runner.waits == 2
    waiting.runner.come.set()
    await settle()
    assert waiting.polls() == 1
    await waiting.slot.stop()


async def test_slot_whose_handler_cannot_be_started_opens_no_poll() -> None:
    """The worker is about to end: it would have to wait for the poll, and could only fail its task."""
    waiting = WaitingSlot()
    waiting.runner.hopeless.set()
    await waiting.start()
    await asyncio.sleep(5 * TASK_SECONDS)
    assert not waiting.polls()
    assert waiting.runner.waits <= 6
    waiting.runner.come.set()
    await asyncio.sleep(2 * TASK_SECONDS)
    assert waiting.polls() == 1
    await waiting.slot.stop()
