"""What a broker last counted in its store, and sums of it for whoever asks how many tasks wait."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.store.broker_store import BrokerStore, QueueDepth

#: Seconds between two counts, however many callers ask.
LEAST_SECONDS: Final = 0.1
#: A count may take this share of the time: a store of millions is counted less often.
COUNT_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class TaskCount:
    """How many tasks wait for a worker, and how many workers have.

    `oldest_due_at` is since when the first of the waiting ones could have been given out, Unix seconds; None without
    one.
    """

    pending: int = 0
    processing: int = 0
    oldest_due_at: float | None = None

    def __add__(self, other: "TaskCount") -> "TaskCount":
        """Return the count of both."""
        due = [one.oldest_due_at for one in (self, other) if one.oldest_due_at is not None]
        return TaskCount(self.pending + other.pending, self.processing + other.processing, min(due, default=None))


class StoreCounts:
    """The counts of a store. `refresh` counts it unless that would take too large a part of the time."""

    def __init__(
        self,
        store: BrokerStore,
        counted: Callable[[Sequence[QueueDepth]], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._counted = counted
        self._monotonic = monotonic
        self._count_from = float("-inf")
        self._counting = asyncio.Lock()
        #: By application and namespace; None stands for all of them.
        self._sums: dict[tuple[str | None, str | None], TaskCount] = {}

    async def refresh(self) -> None:
        """Count the store, unless the last count is recent. Raises SQLAlchemy's errors and OSError."""
        async with self._counting:
            began = self._monotonic()
            if began < self._count_from:
                return
            depths = await self._store.depths()
            ended = self._monotonic()
            self._count_from = ended + max((ended - began) / COUNT_SHARE, LEAST_SECONDS)
            self._sums = _sums(depths)
            self._counted(depths)

    def count(self, application: str | None, namespace: str | None) -> TaskCount:
        """Return the last count of the tasks of an application and a namespace; None is any."""
        return self._sums.get((application, namespace), TaskCount())


def _sums(depths: Sequence[QueueDepth]) -> dict[tuple[str | None, str | None], TaskCount]:
    sums: dict[tuple[str | None, str | None], TaskCount] = {}
    for depth in depths:
        # A claimed task is on its way to a worker and still waits.
        if depth.state in (ActivationState.PENDING, ActivationState.CLAIMED):
            found = TaskCount(pending=depth.count, oldest_due_at=depth.oldest_due_at)
        elif depth.state is ActivationState.PROCESSING:
            found = TaskCount(processing=depth.count)
        else:
            continue
        for application in (depth.application, None):
            for namespace in (depth.namespace, None):
                key = (application, namespace)
                sums[key] = sums.get(key, TaskCount()) + found
    return sums
