"""Metrics of one worker, counted in plain numbers.

The Prometheus library makes series of them when they are first asked for: its import would take a tenth of the
processor time of a start.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: From a no-op to half an hour, the default drain time-out; finer steps would add series and no information.
TASK_BUCKETS_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 1800.0)
#: How a task can end here. `handed_over`: the handler gave the task's token to somebody else.
OUTCOMES: Final = ("succeeded", "failed", "cancelled", "handed_over", "lost", "unconcluded")
#: A poll is answered at once or within the service's minute.
POLL_BUCKETS_SECONDS: Final = (0.05, 0.25, 1.0, 5.0, 15.0, 30.0, 45.0, 60.0, 65.0)


class Durations:
    """A histogram of seconds. A value that equals a bound is in that bound's bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.total_seconds += seconds

    def buckets(self) -> list[tuple[float, int]]:
        """Return each bound, the last one infinite, and how many durations are at most as long."""
        return list(zip((*self._bounds, float("inf")), accumulate(self._counts), strict=True))


class WorkerMetrics:
    """The worker's numbers, and `registry()` with them as Prometheus metrics. See `OUTCOMES`.

    Every method is for the event loop's thread.
    """

    def __init__(self, version: str, slots: int) -> None:
        self.version, self.slots = version, slots
        self.tasks: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self.task_seconds = Durations(TASK_BUCKETS_SECONDS)
        self.poll_seconds = Durations(POLL_BUCKETS_SECONDS)
        self.heartbeats: Counter[str] = Counter(accepted=0, refused=0)
        self.last_heartbeat_at = 0.0
        self.reports: Counter[str] = Counter()
        self.in_progress: Callable[[], int] = int
        self.draining: Callable[[], bool] = bool
        self._registry: CollectorRegistry | None = None

    def registry(self) -> "CollectorRegistry":
        """Return the registry that reads the numbers at each scrape: always the same one."""
        if self._registry is None:
            from activity_worker.supervisor.exposition import registry_of  # noqa: PLC0415 - imports the library

            self._registry = registry_of(self)
        return self._registry

    def watch(self, in_progress: Callable[[], int], draining: Callable[[], bool]) -> None:
        """Read these two at each scrape instead of at every change."""
        self.in_progress, self.draining = in_progress, draining

    def task_ended(self, outcome: str, seconds: float) -> None:
        """Count a task and how long it took, by outcome, one of `OUTCOMES`."""
        self.tasks[outcome] += 1
        self.task_seconds.observe(seconds)

    def polled(self, seconds: float) -> None:
        """Count a poll that ended after `seconds`."""
        self.poll_seconds.observe(seconds)

    def heartbeat_accepted(self, at: float) -> None:
        """Count a task heartbeat that the service accepted; `at` is Unix seconds."""
        self.heartbeats["accepted"] += 1
        self.last_heartbeat_at = at

    def heartbeat_refused(self) -> None:
        """Count a task heartbeat that was not accepted, or not answered."""
        self.heartbeats["refused"] += 1

    def reported(self, result: str) -> None:
        """Count a report: `answered`, `misdirected` or `failed`."""
        self.reports[result] += 1
