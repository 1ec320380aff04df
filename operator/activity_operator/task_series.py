"""The task counters of all pools, kept as plain numbers and turned into series at each scrape."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from activity_operator.cluster.resources import Key
from activity_operator.core.task_counts import NO_COUNTS, TaskCounts
from activity_operator.pool_series import POOL
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


class TaskSeries(Collector):
    """The task counts of all pools, as a collector for a prometheus-client registry.

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

    def collect(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
        """Yield the families one by one, so that only one is in memory at a time. May run in another thread."""
        # The copy is one step under the interpreter's lock, so the main loop cannot change it halfway.
        pools = self._pools.copy()
        outcomes = _family("tasks", "Tasks that workers concluded", "outcome")
        for key, counts in pools.items():
            outcomes.add_metric((*key, "succeeded"), counts.succeeded)
            outcomes.add_metric((*key, "failed"), counts.failed)
        yield outcomes
        durations = HistogramMetricFamily(
            "activitypool_task_duration_seconds", "Durations of the tasks that workers concluded", labels=POOL
        )
        for key, counts in pools.items():
            if counts.durations:
                durations.add_metric(key, _buckets(counts.durations), counts.task_seconds)
        yield durations
        for name, text, field in _COUNTERS:
            family = _family(name, text)
            for key, counts in pools.items():
                family.add_metric(key, getattr(counts, field))
            yield family


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    """Return the histogram's buckets: how many tasks took at most so long. Few bounds keep the series few."""
    found = [
        (f"{bound:g}", float(sum(durations[: place + 1])))
        for place, bound in enumerate(DURATION_BOUNDS)
        if bound in _SHOWN_BOUNDS
    ]
    return [*found, ("+Inf", float(sum(durations)))]


def _family(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"activitypool_{name}", text, labels=[*POOL, *labels])
