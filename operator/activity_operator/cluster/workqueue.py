"""The work queue: a key waits in it at most once, and at most one reconcile loop works on a key."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable

from activity_operator.cluster.resources import Key

#: Least seconds from the end of a key's reconciliation to its next one. Each report of a busy pool asks for one; writes
#: of replicas are combined for 0.25 s anyway.
LEAST_SECONDS = 0.1

#: Called with a key and the time of the clock at which to add it again.
AddLater = Callable[[Key, float], None]


class WorkQueue:
    """A deduplicating queue. A key that is added during its reconciliation is queued again by `done`.

    With `later`, a key that was reconciled less than `LEAST_SECONDS` ago is passed to `later` instead of being queued.
    A key that rests longer is queued at once, and so is an urgent one. `clock` is monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float], later: AddLater | None = None) -> None:
        self._clock = clock
        self._later = later
        #: When each key may be reconciled again, oldest first.
        self._again: OrderedDict[Key, float] = OrderedDict()
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
            self._asked.setdefault(key, self._clock())
            if self._later is not None and not urgent and self._again.get(key, 0.0) > self._clock():
                self._later(key, self._again[key])
                return
            self._queued.add(key)
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
        if self._later is not None:
            self._rest(key)
        if key in self._dirty:
            self.add(key, urgent=self._dirty.pop(key))

    def _rest(self, key: Key) -> None:
        now = self._clock()
        self._again[key] = now + LEAST_SECONDS
        self._again.move_to_end(key)
        while next(iter(self._again.values())) <= now:
            self._again.popitem(last=False)

    def is_running(self, key: Key) -> bool:
        """Whether a reconcile loop works on `key` now."""
        return key in self._running

    def asked_at(self, key: Key, default: float) -> float:
        """Return when the running `key` was queued, or `default`."""
        return self._asked.get(key, default)

    def oldest(self) -> float | None:
        """Return when the longest-running key was taken, None without one; a stuck reconciliation shows here."""
        return min(self._running.values(), default=None)
