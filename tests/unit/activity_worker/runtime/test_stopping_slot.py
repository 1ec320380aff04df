"""A slot that stops takes no task once its runner ends, and is stopped whatever its runner does."""

import asyncio
import contextlib

import pytest

from activity_worker.activity import TaskRequest, TaskResponseToolkit
from activity_worker.contract import EXIT_ERROR, EXIT_OK, ExitOutput, LeasedTask
from activity_worker.runtime.lifecycle import LifecycleError, SlotStatus
from activity_worker.runtime.options import TaskOptions
from activity_worker.runtime.slot import Slot, SlotTakenError
from activity_worker.sources.memory import MemorySource
from tests.unit.activity_operator.virtual_time import elapsed, settle
from tests.unit.activity_worker.runtime.recorded_worker import Recorder

GRACE_SECONDS = 5.0


class SlowRunner:
    """A runner that starts and stops when it is let."""

    def __init__(self) -> None:
        self.may_start, self.may_stop = asyncio.Event(), asyncio.Event()
        self.may_start.set()
        self.runs = 0

    async def start(self) -> None:
        await self.may_start.wait()

    async def stop(self) -> None:
        await self.may_stop.wait()

    async def run(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        self.runs += 1
        await respond.success(request.input)


class SlowSlot:
    """A slot with a slow runner."""

    def __init__(self) -> None:
        self.source, self.runner, self.recorder = MemorySource("arn:activity"), SlowRunner(), Recorder()
        options = TaskOptions(cancel_grace_seconds=GRACE_SECONDS)
        self.slot = Slot(
            self.source, runner=self.runner, worker_name="w", events=self.recorder.emitter, options=options
        )
        self.slot.cordon()


async def test_reserved_slot_takes_no_task_while_its_runner_stops() -> None:
    """Its process would run on after the stop, in a slot that reports leave out."""
    slow = SlowSlot()
    await slow.slot.start()
    await settle()
    assert slow.slot.reserve()
    stopping = asyncio.create_task(slow.slot.stop())
    await settle()
    with pytest.raises(SlotTakenError):
        await slow.slot.run_task(LeasedTask("token", "{}"))
    assert slow.runner.runs == 0
    slow.runner.may_stop.set()
    await stopping
    assert slow.slot.status is SlotStatus.STOPPED


async def test_reserved_slot_takes_its_task_before_its_runner_stops() -> None:
    slow = SlowSlot()
    slow.runner.may_stop.set()
    await slow.slot.start()
    await settle()
    assert slow.slot.reserve()
    stopping = asyncio.create_task(slow.slot.stop())
    run = asyncio.create_task(slow.slot.run_task(LeasedTask("token", "{}")))
    await asyncio.gather(stopping, run)
    assert slow.runner.runs == 1


async def test_slot_whose_runner_does_not_stop_is_stopped_after_the_grace() -> None:
    slow = SlowSlot()
    await slow.slot.start()
    await slow.slot.stop(timeout_seconds=0.0)
    assert elapsed() <= 3 * GRACE_SECONDS + 1
    assert (slow.slot.status, slow.recorder.count("worker:stopped")) == (SlotStatus.STOPPED, 1)
    assert slow.slot.exit_output is not None
    assert slow.slot.exit_output.code == EXIT_ERROR


async def test_start_ends_when_neither_it_nor_the_stop_of_its_runner_does() -> None:
    slow = SlowSlot()
    slow.runner.may_start.clear()
    starting = asyncio.create_task(slow.slot.start())
    await settle()
    await slow.slot.stop(timeout_seconds=0.0)
    async with asyncio.timeout(10 * GRACE_SECONDS):
        await asyncio.gather(starting, return_exceptions=True)
    assert starting.done()
    assert slow.slot.status is SlotStatus.STOPPED


@pytest.mark.parametrize("begun", [False, True])
async def test_stop_gives_up_a_start_that_may_last_forever(begun: bool) -> None:
    """Such a slot has no task: nothing is lost, and no signal could end its program otherwise."""
    slow = SlowSlot()
    slow.runner.may_start.clear()
    slow.runner.may_stop.set()
    starting = asyncio.create_task(slow.slot.start())
    await asyncio.sleep(0)
    if begun:
        await settle()
    async with asyncio.timeout(1.0):
        await slow.slot.stop()
        await starting
    assert (slow.slot.status, slow.slot.exit_output) == (SlotStatus.STOPPED, ExitOutput(EXIT_OK))
    assert slow.recorder.count("worker:error") == 0


async def test_slot_that_left_its_handler_behind_starts_only_after_its_end() -> None:
    """The old loop went on in the new life: two polls, and two tasks at a time."""
    end = asyncio.Event()

    async def ignores(request: TaskRequest) -> None:
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()

    source, recorder = MemorySource("arn:activity"), Recorder()
    slot = Slot(source, ignores, worker_name="w", events=recorder.emitter)
    source.put("{}")
    await slot.start()
    await settle()
    await slot.stop(timeout_seconds=0.0)
    assert slot.status is SlotStatus.STOPPED
    starting = asyncio.create_task(slot.start())
    await settle()
    end.set()
    with pytest.raises(LifecycleError, match="left behind"):
        await starting
    await settle()
    await slot.start()
    await settle()
    assert source.open_polls == 1
    await slot.stop(abort_polls=True)
