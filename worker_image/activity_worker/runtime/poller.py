"""The polls of one slot: one poll after the other, with pauses after failures and after answers that come too fast."""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from activity_worker.contract import EventName, LeasedTask
from activity_worker.errors import ActivityError
from activity_worker.events import PollingFailure
from activity_worker.runtime.counters import TaskCounters
from activity_worker.runtime.handler_runner import HandlerRunner, ReadyRunner
from activity_worker.runtime.options import EMPTY_POLL_SECONDS, Polling
from activity_worker.runtime.poll_health import PollHealth
from activity_worker.sources.protocol import Source

#: Seconds until a slot looks again whether a handler that could not be started can begin a task.
UNUSABLE_SECONDS: Final = 1.0
#: Emits an event of the slot: its name, and the payload after the slot.
Emit = Callable[..., None]


class PollingEndedError(ActivityError):
    """Too many polls failed in a row."""


class Poller:
    """Polls `source` for the slot `worker_name`, while its `runner` can begin a task, and counts the empty polls."""

    def __init__(
        self,
        source: Source,
        worker_name: str,
        polling: Polling,
        counters: TaskCounters,
        emit: Emit,
        runner: HandlerRunner,
    ) -> None:
        self._restarts = runner if isinstance(runner, ReadyRunner) else None
        self._source = source
        self._worker_name = worker_name
        self._counters = counters
        self._emit = emit
        self._health = PollHealth(polling)
        self._wake: asyncio.Future[None] | None = None
        self._aborting = False

    @property
    def open(self) -> bool:
        """Whether a poll is in flight."""
        return self._health.open

    def trouble(self, now: float) -> Exception | None:
        """Return why the polls fail, as `PollHealth.trouble` does; `now` is the event loop's time."""
        return self._health.trouble(now)

    def reset(self) -> None:
        """Forget failures and an abort: the slot starts."""
        self._health.reset()
        self._aborting = False

    async def poll_once(self) -> LeasedTask | None:
        """Poll once, without a retry; raises the poll's error after `polling:error`."""
        self._emit(EventName.POLLING_STARTING)
        try:
            task = await self._source.lease(self._worker_name)
        except Exception as error:
            self._emit(EventName.POLLING_ERROR, PollingFailure(False, 1, error))
            raise
        self._emit(EventName.POLLING_SUCCESS, task)
        return task

    async def poll(self, goes_on: Callable[[], bool]) -> LeasedTask | None:
        """Poll, and pause if another poll should not follow at once; `goes_on` tells whether one follows at all.

        Returns the task, or None for an empty, failed or aborted poll. Raises `PollingEndedError`.
        """
        self._emit(EventName.POLLING_STARTING)
        began = _now()
        self._health.begin(began)
        try:
            task = await self._source.lease(self._worker_name)
        except asyncio.CancelledError:
            if self._is_abort():
                return None
            raise
        except Exception as error:  # noqa: BLE001 - whatever a source raises, the poll is tried again
            self._health.end(_now())
            await self._failed(error, goes_on)
            return None
        finally:
            self._health.end(_now())
        self._health.reset()
        self._emit(EventName.POLLING_SUCCESS, task)
        if task is None:
            self._counters.empty_polls += 1
            await self._keep_distance(began, goes_on)
        return task

    async def wait_for_handler(self) -> bool:
        """Wait until the handler can begin a task, which may have little time; False if it cannot yet, or not at all.

        The slot is free meanwhile, and may get a granted task: look again before the poll.
        """
        if self._restarts is None or self._restarts.ready:
            return True
        waiting = asyncio.ensure_future(self._restarts.wait_ready())
        # The end of a wait that is given up comes later, in the next pause.
        waiting.add_done_callback(lambda over: None if over.cancelled() else self.wake())
        try:
            await self.pause(None)
            over = waiting.done()
        finally:
            waiting.cancel()
        if over and not self._restarts.ready:
            # It cannot be started, or has ended again.
            await self.pause(UNUSABLE_SECONDS)
        return self._restarts.ready

    def abort(self, host: "asyncio.Task[None]") -> None:
        """Give up the open poll, which `host` awaits; does nothing without one, or a second time."""
        # A second cancellation of the same poll would end the slot as a crash.
        if self._health.open and not self._aborting:
            self._aborting = True
            host.cancel()

    async def pause(self, seconds: float | None) -> None:
        """Sleep until `wake` is called, or for `seconds` at most."""
        loop = asyncio.get_running_loop()
        wake: asyncio.Future[None] = loop.create_future()
        self._wake = wake
        timer = None if seconds is None else loop.call_later(seconds, self.wake)
        try:
            await wake
        finally:
            self._wake = None
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """End the pause, if there is one."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _is_abort(self) -> bool:
        host = asyncio.current_task()
        return self._aborting and host is not None and host.uncancel() == 0

    async def _failed(self, error: Exception, goes_on: Callable[[], bool]) -> None:
        failure = self._health.fail(error)
        self._emit(EventName.POLLING_ERROR, failure)
        if not goes_on():
            return
        if not failure.retriable:
            raise PollingEndedError(f"{failure.attempts} polls failed in a row, the last with {error}") from error
        await self.pause(self._health.pause_seconds(random.random()))  # noqa: S311 - a spread of pauses, not a secret

    async def _keep_distance(self, began: float, goes_on: Callable[[], bool]) -> None:
        """Wait before the next poll if the source answered an empty poll at once."""
        left = began + EMPTY_POLL_SECONDS - _now()
        if left > 0 and goes_on():
            await self.pause(left)


def _now() -> float:
    return asyncio.get_running_loop().time()
