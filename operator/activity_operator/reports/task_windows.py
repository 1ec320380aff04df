"""What the workers of each pool did in the last minutes. No clock and no I/O; a pool at rest costs nothing."""

from activity_operator.core.task_counts import NO_COUNTS, TaskCounts
from activity_operator.core.task_window import WINDOW_SECONDS, TaskPeriod, TaskWindow, period_start

Key = tuple[str, str]


class TaskWindows:
    """The windows of all pools. Times are Unix seconds."""

    def __init__(self) -> None:
        self._pools: dict[Key, dict[tuple[float, str], TaskCounts]] = {}

    def add(self, key: Key, revision: str, counts: TaskCounts, now: float) -> None:
        """Add what a worker of the revision did since its last report; what was only waiting is left out."""
        if not counts.any_task:
            return
        periods = self._pools.setdefault(key, {})
        self._drop_old(periods, now)
        place = (period_start(now), revision)
        periods[place] = periods.get(place, NO_COUNTS) + counts

    def window(self, key: Key, now: float) -> TaskWindow:
        """Return the pool's periods, oldest first."""
        periods = self._pools.get(key)
        if periods is None:
            return ()
        self._drop_old(periods, now)
        if not periods:
            del self._pools[key]
        return tuple(TaskPeriod(start, revision, counts) for (start, revision), counts in sorted(periods.items()))

    def forget(self, key: Key) -> None:
        """Forget a pool that is gone."""
        self._pools.pop(key, None)

    def clear(self) -> None:
        """Forget all pools, at the begin of a term."""
        self._pools.clear()

    @staticmethod
    def _drop_old(periods: dict[tuple[float, str], TaskCounts], now: float) -> None:
        oldest = period_start(now) - WINDOW_SECONDS
        for place in [place for place in periods if place[0] < oldest]:
            del periods[place]
