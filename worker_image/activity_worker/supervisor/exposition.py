"""The worker's numbers as Prometheus metrics. Labels are small enumerations: no token, execution or worker's name."""

import platform
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from activity_worker.supervisor.metrics import Durations, WorkerMetrics


def registry_of(metrics: WorkerMetrics) -> CollectorRegistry:
    """Return a registry that has these metrics; a source may add its own."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    registry.register(_WorkerCollector(metrics))
    return registry


class _WorkerCollector(Collector):
    def __init__(self, metrics: WorkerMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        own = self._metrics
        yield InfoMetricFamily(
            "activity_worker",
            "Version of the worker runtime.",
            {"version": own.version, "python": platform.python_version()},
        )
        yield _counter("activity_worker_tasks", "Tasks that ended here, by outcome.", "outcome", own.tasks)
        yield _histogram(
            "activity_worker_task_duration_seconds",
            "Time from receiving a task to the end of its handling.",
            own.task_seconds,
        )
        yield GaugeMetricFamily("activity_worker_tasks_in_progress", "Tasks being handled.", own.in_progress())
        yield GaugeMetricFamily("activity_worker_slots", "Tasks that this worker can handle at once.", own.slots)
        yield _histogram(
            "activity_worker_poll_duration_seconds",
            "How long polls were open, with or without a task.",
            own.poll_seconds,
        )
        yield _counter("activity_worker_heartbeats", "Task heartbeats sent, by result.", "result", own.heartbeats)
        yield GaugeMetricFamily(
            "activity_worker_last_heartbeat_timestamp_seconds",
            "When a task heartbeat was last accepted, in Unix seconds.",
            own.last_heartbeat_at,
        )
        yield GaugeMetricFamily(
            "activity_worker_draining", "1 while the worker takes no new tasks.", 1 if own.draining() else 0
        )
        yield _counter("activity_worker_reports", "Reports to the operator, by result.", "result", own.reports)


def _counter(name: str, documentation: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, documentation, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _histogram(name: str, documentation: str, durations: Durations) -> HistogramMetricFamily:
    buckets = [
        (floatToGoString(bound), count)  # type: ignore[no-untyped-call]
        for bound, count in durations.buckets()
    ]
    return HistogramMetricFamily(name, documentation, buckets, durations.total_seconds)
