"""A time limit that throws away no answer that came while the process stood still.

A process that stood still (SIGSTOP, a suspended machine) finds on waking that its timers are due and that answers wait
in its sockets. A plain time-out then cancels a call before it sees the answer that is there; with a poll's answer, a
task is lost until it times out. So the limit is followed by a grace in which to read.
"""

import asyncio
from types import TracebackType
from typing import Self

#: A few turns of the loop would do for an answer; after a standstill there may be a thousand.
GRACE_SECONDS = 1.0
#: A timer that rings so much too late does so after a standstill.
_LATE_SECONDS = 0.5


class GraceTimeout:
    """`with GraceTimeout(seconds)` is `asyncio.timeout(seconds)` with a grace, and another when it stood still in that.

    Cheaper than `asyncio.timeout`, too: it is in the way of every call.
    """

    __slots__ = ("_cancelling", "_due", "_grace", "_loop", "_spent", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + seconds
        self._grace = self._spent = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("GraceTimeout needs a task that it can cancel: enter it inside a coroutine")
        self._task = task
        self._cancelling = task.cancelling()
        self._timer = self._loop.call_at(self._due, self._ring)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # Where somebody else cancelled the task as well, it stays cancelled.
        if self._spent and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _ring(self) -> None:
        now = self._loop.time()
        if self._grace and now < self._due + _LATE_SECONDS:
            self._spent = True
            self._task.cancel()
            return
        self._grace = True
        self._due = now + GRACE_SECONDS
        self._timer = self._loop.call_at(self._due, self._ring)
