"""The end of a slot's stop whose time is over: the task is cancelled, and its conclusion has a time of its own."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from activity_worker.runtime.cancellation import CancelReason
from activity_worker.runtime.task_run import SlotContext, TaskRun

_log = logging.getLogger(__name__)

#: Seconds for which a stop waits for conclusions that are under way, unless its caller says otherwise.
STOP_SECONDS: Final = 30.0
#: How often the stop looks whether a conclusion is under way.
_LOOK_SECONDS: Final = 0.5


class SlotStop:
    """Cancels the tasks of a slot; `current` returns the task under way."""

    def __init__(self, context: SlotContext, current: Callable[[], TaskRun | None]) -> None:
        self._context = context
        self._current = current
        #: Until when the cancelled handlers may end, in the event loop's time; None before one is cancelled.
        self._until: float | None = None

    def reset(self) -> None:
        """Forget an earlier stop: the slot starts."""
        self._until = None

    def task_begins(self) -> None:
        """Cancel a task that comes after the time of the stop: with a poll that was open, or with a grant."""
        if self._until is not None:
            self._cancel()

    async def end(self, main: "asyncio.Task[None]", conclude_seconds: float) -> None:
        """Cancel the task and wait for the end of `main`, the slot's loop; then cancel that.

        A conclusion that its source has not taken is waited for, for `conclude_seconds`.
        """
        loop, grace = asyncio.get_running_loop(), self._context.options.cancel_grace_seconds
        concluded_until = loop.time() + conclude_seconds
        until = self._cancel()
        while not main.done():
            if self._concluding:
                # The conclusion still counts, and its handler may have to end after it.
                until = max(until, min(loop.time() + grace + 1, concluded_until))
            until = max(until, self._until or until)
            if (left := until - loop.time()) <= 0:
                break
            await asyncio.wait((main,), timeout=min(left, _LOOK_SECONDS))
        if not main.done():
            self._give_up_conclusions()
            main.cancel()
            await asyncio.wait((main,), timeout=grace)

    def _cancel(self) -> float:
        """Cancel the task under way, if any, and return until when its handler may end."""
        self._until = until = asyncio.get_running_loop().time() + 2 * self._context.options.cancel_grace_seconds + 1
        if (run := self._current()) is not None:
            run.cancel(CancelReason.WORKER_STOPPED, "the worker stopped before the handler had finished")
        return until

    @property
    def _concluding(self) -> bool:
        """Whether the source has not answered the conclusion of a task yet, or is about to be asked again."""
        run = self._current()
        return bool(self._context.background_tasks) or (run is not None and run.respond.answering)

    def _give_up_conclusions(self) -> None:
        if self._concluding:
            words = "slot %s ends before its task is concluded: the source took no conclusion in time"
            _log.warning(words, self._context.slot.worker_name)
        for conclusion in self._context.background_tasks:
            conclusion.cancel()
