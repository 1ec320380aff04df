"""Prometheus metrics of one worker. Labels are small enumerations: no token, no execution, no worker's name."""

import platform
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics

#: From a no-op to half an hour, the default drain time-out; finer steps would add series and no information.
TASK_BUCKETS_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800)
#: How a task can end here. `handed_over`: the handler gave the task's token to somebody else.
OUTCOMES: Final = ("succeeded", "failed", "cancelled", "handed_over", "lost", "unconcluded")
#: A poll is answered at once or within the service's minute.
POLL_BUCKETS_SECONDS: Final = (0.05, 0.25, 1, 5, 15, 30, 45, 60, 65)


class WorkerMetrics:
    """The worker's metrics in a registry of their own. See `OUTCOMES`."""

    def __init__(self, version: str, slots: int) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._info = Info("activity_worker", "Version of the worker runtime.", registry=self.registry)
        self._info.info({"version": version, "python": platform.python_version()})
        self._tasks = Counter(
            "activity_worker_tasks", "Tasks that ended here, by outcome.", ["outcome"], registry=self.registry
        )
        self._durations = Histogram(
            "activity_worker_task_duration_seconds",
            "Time from receiving a task to the end of its handling.",
            buckets=TASK_BUCKETS_SECONDS,
            registry=self.registry,
        )
        self._in_progress = Gauge("activity_worker_tasks_in_progress", "Tasks being handled.", registry=self.registry)
        self._slots = Gauge(
            "activity_worker_slots", "Tasks that this worker can handle at once.", registry=self.registry
        )
        self._slots.set(slots)
        self._polls = Histogram(
            "activity_worker_poll_duration_seconds",
            "How long polls were open, with or without a task.",
            buckets=POLL_BUCKETS_SECONDS,
            registry=self.registry,
        )
        self._heartbeats = Counter(
            "activity_worker_heartbeats", "Task heartbeats sent, by result.", ["result"], registry=self.registry
        )
        self._last_heartbeat = Gauge(
            "activity_worker_last_heartbeat_timestamp_seconds",
            "When a task heartbeat was last accepted, in Unix seconds.",
            registry=self.registry,
        )
        self._draining = Gauge(
            "activity_worker_draining", "1 while the worker takes no new tasks.", registry=self.registry
        )
        self._reports = Counter(
            "activity_worker_reports", "Reports to the operator, by result.", ["result"], registry=self.registry
        )
        for outcome in OUTCOMES:
            self._tasks.labels(outcome)
        for result in ("accepted", "refused"):
            self._heartbeats.labels(result)

    def watch(self, in_progress: Callable[[], int], draining: Callable[[], bool]) -> None:
        """Read these two at each scrape instead of at every change."""
        self._in_progress.set_function(in_progress)
        self._draining.set_function(lambda: 1.0 if draining() else 0.0)

    def task_ended(self, outcome: str, seconds: float) -> None:
        """Count a task and how long it took, by outcome, one of `OUTCOMES`."""
        self._tasks.labels(outcome).inc()
        self._durations.observe(seconds)

    def polled(self, seconds: float) -> None:
        """Count a poll that ended after `seconds`."""
        self._polls.observe(seconds)

    def heartbeat_accepted(self, at: float) -> None:
        """Count a task heartbeat that the service accepted; `at` is Unix seconds."""
        self._heartbeats.labels("accepted").inc()
        self._last_heartbeat.set(at)

    def heartbeat_refused(self) -> None:
        """Count a task heartbeat that was not accepted, or not answered."""
        self._heartbeats.labels("refused").inc()

    def reported(self, result: str) -> None:
        """Count a report: `answered`, `misdirected` or `failed`."""
        self._reports.labels(result).inc()
