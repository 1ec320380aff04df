"""What a stopping slot still holds is concluded while the stop lasts, once, however slow its source is."""

import asyncio
import contextlib
import logging

import pytest

from activity_worker.activity import TaskRequest, TaskResponseToolkit
from activity_worker.contract import ERROR_WORKER_STOPPED, EXIT_OK
from activity_worker.errors import UnreachableError
from activity_worker.runtime.lifecycle import SlotStatus
from activity_worker.runtime.options import TaskOptions
from activity_worker.runtime.slot import Slot
from activity_worker.sources.memory import MemorySource
from tests.unit.activity_operator.virtual_time import elapsed, settle

GRACE_SECONDS = 5.0
#: The last time at which a stop without a limit for conclusions lost them.
SHORT_SECONDS = 3 * GRACE_SECONDS + 1


class SlowSource(MemorySource):
    """A source that is unreachable until `up_at`, and that takes `answer_seconds` for each conclusion."""

    def __init__(self, *, answer_seconds: float = 0.0, up_at: float = 0.0) -> None:
        super().__init__("arn:activity")
        self.answer_seconds, self.up_at = answer_seconds, up_at
        self.sent: list[str] = []

    async def fail(self, token: str, error: str, cause: str) -> None:
        if elapsed() < self.up_at:
            raise UnreachableError("ConnectionRefused")
        self.sent.append(token)
        await asyncio.sleep(self.answer_seconds)
        await super().fail(token, error, cause)

    async def succeed(self, token: str, output: str) -> None:
        self.sent.append(token)
        await asyncio.sleep(self.answer_seconds)
        await super().succeed(token, output)


async def waits(request: TaskRequest) -> None:
    """Run until cancelled."""
    await asyncio.Event().wait()


async def ignores(request: TaskRequest) -> None:
    """Run on although cancelled."""
    while (left := 9_000.0 - elapsed()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(left)


async def answers(request: TaskRequest, respond: TaskResponseToolkit) -> None:
    """Answer, then run until cancelled."""
    await respond.success(request.input)
    await asyncio.Event().wait()


def slot_of(source: MemorySource, handler: object) -> Slot:
    options = TaskOptions(cancel_grace_seconds=GRACE_SECONDS, heartbeat_seconds=999)
    return Slot(source, handler, worker_name="w", options=options)  # type: ignore[arg-type]  # one of the three above


async def running(source: MemorySource, handler: object) -> tuple[Slot, str]:
    """Return a slot that runs a task of this handler, and the task's token."""
    slot = slot_of(source, handler)
    token = source.put("{}")
    await slot.start()
    await settle()
    return slot, token


@pytest.mark.parametrize("handler", [waits, ignores])
@pytest.mark.parametrize("source", [{"answer_seconds": 40.0}, {"up_at": 30.0}], ids=["slow", "away"])
async def test_stop_waits_for_a_late_conclusion(handler: object, source: dict[str, float]) -> None:
    late = SlowSource(**source)
    slot, token = await running(late, handler)
    await slot.stop(timeout_seconds=0.0, conclude_seconds=70.0)
    assert slot.status is SlotStatus.STOPPED
    assert late.conclusions[token].error == ERROR_WORKER_STOPPED
    assert late.sent == [token]
    assert elapsed() > SHORT_SECONDS


async def test_answer_that_is_under_way_at_the_stop_counts() -> None:
    late = SlowSource(answer_seconds=40.0)
    slot, token = await running(late, answers)
    await slot.stop(timeout_seconds=0.0, conclude_seconds=70.0)
    assert late.conclusions[token].result == "success"
    assert late.sent == [token]
    assert slot.exit_output is not None
    assert slot.exit_output.code == EXIT_OK


@pytest.mark.parametrize("handler", [waits, ignores, answers])
async def test_stop_leaves_a_conclusion_that_its_source_never_takes(handler: object) -> None:
    silent = SlowSource(answer_seconds=3600.0)
    slot, _ = await running(silent, handler)
    await slot.stop(timeout_seconds=0.0, conclude_seconds=70.0)
    assert slot.status is SlotStatus.STOPPED
    assert 70.0 <= elapsed() <= 70.0 + 2 * GRACE_SECONDS
    await asyncio.sleep(3600.0)
    assert silent.conclusions == {}


async def test_stop_ends_with_the_handler_where_nothing_is_to_conclude() -> None:
    slot, _ = await running(SlowSource(), waits)
    await slot.stop(timeout_seconds=0.0, conclude_seconds=70.0)
    assert elapsed() < 1.0


async def test_conclusion_that_takes_long_is_no_ignored_cancellation(caplog: pytest.LogCaptureFixture) -> None:
    slot, _ = await running(SlowSource(answer_seconds=GRACE_SECONDS + 1), waits)
    with caplog.at_level(logging.WARNING):
        await slot.stop(timeout_seconds=0.0)
    assert "ignores its cancellation" not in caplog.text


@pytest.mark.parametrize("at_seconds", [3.0, 2 * GRACE_SECONDS])
async def test_task_of_a_poll_that_outlasts_the_stop_is_cancelled_too(at_seconds: float) -> None:
    """It ran on without a word, and was lost when the stop gave up the slot."""
    source = MemorySource("arn:activity")
    slot = slot_of(source, waits)
    await slot.start()
    await settle()
    stopping = asyncio.create_task(slot.stop(timeout_seconds=0.0))
    await asyncio.sleep(at_seconds)
    token = source.put("{}")
    await stopping
    assert source.conclusions[token].error == ERROR_WORKER_STOPPED
