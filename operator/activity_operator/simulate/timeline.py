"""PURE: virtual time: a heap of callbacks. No clock is read, and equal times keep the order of their entry."""

import heapq
import itertools
from collections.abc import Callable

Callback = Callable[[], None]


class Timeline:
    """Runs callbacks in the order of their times; `now` is in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Callback]] = []
        self._numbers = itertools.count()

    def at(self, time: float, callback: Callback) -> None:
        """Run `callback` at this time, or at once if the time is past."""
        heapq.heappush(self._heap, (max(time, self.now), next(self._numbers), callback))

    def after(self, seconds: float, callback: Callback) -> None:
        """Run `callback` after this many seconds."""
        self.at(self.now + seconds, callback)

    def every(self, seconds: float, callback: Callback, first: float = 0.0) -> None:
        """Run `callback` every `seconds`, the first time after `first` seconds."""

        def again() -> None:
            callback()
            self.after(seconds, again)

        self.after(first, again)

    def run_until(self, time: float) -> None:
        """Run all callbacks up to and at this time."""
        heap = self._heap
        while heap and heap[0][0] <= time:
            self.now, _, callback = heapq.heappop(heap)
            callback()
        self.now = time
