"""The work queue: a key waits in it at most once, and at most one reconcile loop works on a key."""

import asyncio
from collections import deque
from collections.abc import Callable

from activity_operator.cluster.resources import Key


class WorkQueue:
    """A deduplicating queue. A key that is added during its reconciliation is queued again by `done`.

    `clock` (monotonic seconds) gives the times for `asked_at` and `oldest`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: deque[Key] = deque()
        self._queued: set[Key] = set()
        self._running: dict[Key, float] = {}
        self._dirty: dict[Key, bool] = {}
        self._asked: dict[Key, float] = {}
        self._more = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Key, *, urgent: bool = False) -> None:
        """Queue `key`; `urgent` puts it first, before the hundreds of keys of a resync."""
        if key in self._running:
            self._dirty[key] = urgent or self._dirty.get(key, False)
        elif key not in self._queued:
            self._queued.add(key)
            self._asked[key] = self._clock()
            self._put(key, urgent)
        elif urgent and self._waiting[0] != key:
            self._waiting.remove(key)
            self._put(key, urgent)

    def _put(self, key: Key, urgent: bool) -> None:
        if urgent:
            self._waiting.appendleft(key)
        else:
            self._waiting.append(key)
        self._more.set()

    async def get(self) -> Key:
        """Wait for the next key and mark it as running; the caller calls `done` afterwards."""
        while not self._waiting:
            self._more.clear()
            await self._more.wait()
        key = self._waiting.popleft()
        self._queued.discard(key)
        self._running[key] = self._clock()
        return key

    def done(self, key: Key) -> None:
        """Mark the work on `key` as ended; queue it again if it was added in the meantime."""
        self._running.pop(key, None)
        self._asked.pop(key, None)
        if key in self._dirty:
            self.add(key, urgent=self._dirty.pop(key))

    def is_running(self, key: Key) -> bool:
        """Whether a reconcile loop works on `key` now."""
        return key in self._running

    def asked_at(self, key: Key, default: float) -> float:
        """Return when the running `key` was queued, or `default`."""
        return self._asked.get(key, default)

    def oldest(self) -> float | None:
        """Return when the longest-running key was taken, None without one; a stuck reconciliation shows here."""
        return min(self._running.values(), default=None)
