"""Queues every known pool: at once, or spread over seconds so that thousands of reconciliations make no peak."""

import random
from collections.abc import Callable

from activity_operator.cluster.delay_queue import DelayQueue
from activity_operator.cluster.store import Store
from activity_operator.cluster.workqueue import WorkQueue

#: Reconciliations a second by which all pools are spread. One takes about 0.5 ms, so this is a quarter of a core.
SPREAD_RATE = 500.0
#: Most seconds over which all pools are spread.
MOST_SPREAD_SECONDS = 30.0


class AllPools:
    """Queues all pools. `clock` is monotonic seconds, `jitter` returns numbers from 0 to 1."""

    def __init__(
        self,
        store: Store,
        queue: WorkQueue,
        delay_queue: DelayQueue,
        clock: Callable[[], float],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._queue = queue
        self._delay_queue = delay_queue
        self._clock = clock
        self._jitter = jitter

    def enqueue(self) -> None:
        """Queue every pool now: for what must not wait, such as the begin of a term."""
        for key in self._store.known_keys():
            self._queue.add(key)

    def enqueue_spread(self) -> None:
        """Queue every pool within seconds, each at a random time: for what concerns all pools and may wait.

        A pool that is being reconciled now is reconciled again at once, because it may have missed the change.
        """
        keys = self._store.known_keys()
        now, seconds = self._clock(), min(len(keys) / SPREAD_RATE, MOST_SPREAD_SECONDS)
        for key in keys:
            if self._queue.is_running(key):
                self._queue.add(key)
            else:
                self._delay_queue.advance(key, now + seconds * self._jitter())
