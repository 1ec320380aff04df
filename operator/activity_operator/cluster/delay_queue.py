"""Due times at which pools are reconciled again: one heap for all pools instead of a timer per pool."""

import asyncio
import contextlib
import heapq
from collections.abc import Callable

from activity_operator.cluster.resources import Key

#: Replaced entries that may stay in the heap beside as many as there are keys.
SKIPPED_ENTRIES = 1_000


class DelayQueue:
    """At most one due time per key, in seconds of `clock` (monotonic); `add` is called with each key that is due."""

    def __init__(self, add: Callable[[Key], None], clock: Callable[[], float]) -> None:
        self._add = add
        self._clock = clock
        self._heap: list[tuple[float, Key]] = []
        self._at: dict[Key, float] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: Key, at: float | None) -> None:
        """Replace the key's due time, or remove it (None). A replaced entry stays in the heap and is skipped there."""
        if at is None:
            self._at.pop(key, None)
            return
        self._at[key] = at
        if len(self._heap) > 2 * len(self._at) + SKIPPED_ENTRIES:
            self._heap = [(time, each) for each, time in self._at.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (at, key))
        if self._heap[0] == (at, key):
            self._changed.set()

    def advance(self, key: Key, at: float) -> None:
        """Set the key's due time, unless the key is due earlier."""
        if self._at.get(key, float("inf")) > at:
            self.set(key, at)

    def pop_due(self) -> float | None:
        """Call `add` for all keys that are due; return the seconds until the next entry, or None without one."""
        while self._heap:
            at, key = self._heap[0]
            due = self._at.get(key) == at
            if due and (wait := at - self._clock()) > 0:
                return wait
            # `_add` may set the key again, and that may rebuild the heap.
            heapq.heappop(self._heap)
            if due:
                del self._at[key]
                self._add(key)
        return None

    async def run(self) -> None:
        """Call `add` for keys as they become due, until cancelled."""
        while True:
            self._changed.clear()
            wait = self.pop_due()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
