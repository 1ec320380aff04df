"""The time the fake lives by: the event loop's, or a test's."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """Something that will happen, and need not."""

    def cancel(self) -> None:
        """Make it not happen."""


class Clock(Protocol):
    """Seconds that only rise, and callbacks in the future."""

    def now(self) -> float:
        """Return seconds since some fixed moment."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call back once at `when` or soon after."""


class LoopClock:
    """The running event loop's time."""

    def now(self) -> float:
        """Return the loop's time in seconds."""
        return asyncio.get_running_loop().time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call back from the loop."""
        return asyncio.get_running_loop().call_at(when, callback)


class _VirtualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """Time that moves only when a test moves it: `advance(seconds)` runs what falls due, in order."""

    def __init__(self) -> None:
        self._now = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, _VirtualTimer]] = []

    def now(self) -> float:
        """Return the seconds advanced so far."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call back when the clock is advanced to `when`."""
        timer = _VirtualTimer(callback)
        heapq.heappush(self._due, (when, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Move time on, running each callback at its own moment."""
        end = self._now + seconds
        while self._due and self._due[0][0] <= end:
            when, _, timer = heapq.heappop(self._due)
            self._now = max(self._now, when)
            if timer.callback is not None:
                timer.callback()
        self._now = end
