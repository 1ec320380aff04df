"""The task counters of all pools, kept as plain numbers and turned into series at each scrape."""

from collections.abc import Callable, Iterator
from operator import attrgetter

from activity_operator.cluster.resources import Key
from activity_operator.core.task_counts import NO_COUNTS, TaskCounts
from activity_operator.exposition import Series, lines, metric_header, metric_text, pool_labels
from activity_worker.contract.durations import DURATION_BOUNDS, Durations

#: Most pools without series whose counts this process keeps, so that a later term goes on with them. Counts of a
#: pool beyond it begin at 0 again, as after a restart of the operator.
MAX_KEPT_POOLS = 20_000

#: The bounds of the histogram, some of those that reports have.
_SHOWN_BOUNDS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
#: Metric, help text, and the field of `TaskCounts`.
_COUNTERS = (
    ("tasks_received", "Tasks that workers received", "received"),
    ("task_heartbeat_failures", "Task heartbeats that were not accepted", "heartbeat_failures"),
    ("empty_polls", "Polls of workers that brought no task", "empty_polls"),
    ("busy_seconds", "Time of slots with a task, in seconds", "busy_seconds"),
    ("slot_seconds", "Time of slots with a task or free for one, in seconds", "slot_seconds"),
)


class TaskSeries:
    """The task counts of all pools, and the text of their series.

    Only pools of the present term have series. The counts outlive the term, so that a later term of this process goes
    on with them and no counter decreases.
    """

    def __init__(self) -> None:
        self._pools: dict[Key, TaskCounts] = {}
        self._kept: dict[Key, TaskCounts] = {}

    def show(self, key: Key) -> None:
        """Export the pool's series, from 0 for a new pool: the first task of a pool is then an increase."""
        if key not in self._pools:
            self._pools[key] = self._kept.pop(key, NO_COUNTS)

    def add(self, key: Key, counts: TaskCounts) -> None:
        """Add what one worker did since its last report; a report alone does not make the pool's series."""
        table = self._pools if key in self._pools else self._kept
        table[key] = table.get(key, NO_COUNTS) + counts
        self._drop_oldest()

    def forget(self, key: Key) -> None:
        """Remove the series and the counts of a deleted pool."""
        self._pools.pop(key, None)
        self._kept.pop(key, None)

    def clear(self) -> None:
        """Remove the series of all pools at the end of a term, and keep their counts."""
        self._kept |= self._pools
        self._pools.clear()
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._kept) > MAX_KEPT_POOLS:
            del self._kept[next(iter(self._kept))]

    def render(self) -> Iterator[str]:
        """Yield the text of one family after the other. May run in another thread."""
        # The copy is one step under the interpreter's lock, so the main loop cannot change it halfway.
        pools = [(pool_labels(key), counts) for key, counts in self._pools.copy().items()]
        yield _counter("tasks", "Tasks that workers concluded", _outcomes(pools))
        yield _durations(pools)
        for name, text, field in _COUNTERS:
            yield _counter(name, text, _field(pools, attrgetter(field)))


#: Pools by the text of their labels.
Pools = list[tuple[str, TaskCounts]]


def _counter(name: str, text: str, series: Series) -> str:
    return metric_text(f"activitypool_{name}_total", "counter", text, series)


def _field(pools: Pools, read: Callable[[TaskCounts], float]) -> Series:
    return ((pool, read(counts)) for pool, counts in pools)


def _outcomes(pools: Pools) -> Series:
    for pool, counts in pools:
        yield f'{pool},outcome="succeeded"', counts.succeeded
        yield f'{pool},outcome="failed"', counts.failed


def _durations(pools: Pools) -> str:
    name = "activitypool_task_duration_seconds"
    timed = [(pool, counts) for pool, counts in pools if counts.durations]
    return (
        metric_header(name, "histogram", "Durations of the tasks that workers concluded")
        + lines(
            f"{name}_bucket",
            (
                (f'{pool},le="{bound}"', number)
                for pool, counts in timed
                for bound, number in _buckets(counts.durations)
            ),
        )
        + lines(f"{name}_count", ((pool, sum(counts.durations)) for pool, counts in timed))
        + lines(f"{name}_sum", ((pool, counts.task_seconds) for pool, counts in timed))
    )


def _buckets(durations: Durations) -> list[tuple[str, int]]:
    """Return the histogram's buckets: how many tasks took at most so long. Few bounds keep the series few."""
    found = [
        (f"{bound:g}", sum(durations[: place + 1]))
        for place, bound in enumerate(DURATION_BOUNDS)
        if bound in _SHOWN_BOUNDS
    ]
    return [*found, ("+Inf", sum(durations))]
