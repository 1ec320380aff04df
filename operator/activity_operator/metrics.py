"""The operator's metrics for Prometheus.

Labels are namespace, activitypool and small enumerations. The series of a deleted pool are removed.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from activity_operator.api.spec import PoolSpec
from activity_operator.cluster.resources import Key
from activity_operator.core.decision import Decision
from activity_operator.core.observation import Observation
from activity_operator.core.task_counts import TaskCounts
from activity_operator.pool_series import PoolSeries, numbers
from activity_operator.task_series import TaskSeries

#: The labels of a pool's series.
POOL = ("namespace", "activitypool")
#: Buckets in seconds; a start from zero should take 0.5 s, so the buckets are dense around it.
LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
#: Calls that the service holds until a task arrives, for up to a minute: their duration is not the service's latency.
LONG_POLLS = frozenset({"GetActivityTask"})

M = TypeVar("M", Counter, Histogram)


class Metrics:
    """All metrics of one operator process, in a registry of their own."""

    def __init__(self, version: str) -> None:
        # Creation times would double every counter's series, and nothing reads them.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._pools = PoolSeries()
        self._tasks = TaskSeries()
        self._series: dict[Key, set[tuple[Counter | Histogram, tuple[str, ...]]]] = {}
        self._gauges(version)
        self._counters()

    def _gauges(self, version: str) -> None:
        build = Gauge(
            "activitypool_build_info", "The operator's version, always 1", ["version"], registry=self.registry
        )
        build.labels(version).set(1)
        self.leader = Gauge("activitypool_leader", "1 while this process leads", registry=self.registry)
        self.loop_lag = Gauge(
            "activitypool_loop_lag_seconds",
            "How late the main loop's last beat came; it beats once a second",
            registry=self.registry,
        )
        self.queue_length = Gauge(
            "activitypool_queue_length", "Pools that wait to be looked at", registry=self.registry
        )

    def _counters(self) -> None:
        self._decisions = self._counter("scale_decisions", "Writes of replicas", "direction", "reason")
        self._lost = self._counter("workers_lost", "Workers that ended without having drained", "reason")
        self._latency = Histogram(
            "activitypool_scale_latency_seconds",
            "From the change that asked for it to the write of replicas",
            POOL,
            buckets=LATENCIES,
            registry=self.registry,
        )
        self._reconciliations = Counter(
            "activitypool_reconciliations", "Looks at a pool", ["result"], registry=self.registry
        )
        self._duration = Histogram(
            "activitypool_reconcile_duration_seconds", "One look at a pool", buckets=LATENCIES, registry=self.registry
        )
        self._requests = Counter(
            "activitypool_backend_requests",
            "Calls to task services and the Kubernetes API, and workers' reports; code is the HTTP status or 0",
            ["backend", "operation", "code"],
            registry=self.registry,
        )
        self._request_duration = Histogram(
            "activitypool_backend_request_duration_seconds",
            'Calls to task services, credentials looked up included. The service holds those of kind="long_poll" for '
            'up to a minute until a task comes: that is waiting, not latency, which is kind="call"',
            ["backend", "operation", "kind", "outcome"],
            buckets=(*LATENCIES, 60.0, 65.0),
            registry=self.registry,
        )
        self._status_writes = Counter("activitypool_status_writes", "Statuses written", registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"activitypool_{name}", text, [*POOL, *labels], registry=self.registry)

    def render(self) -> bytes:
        """Return the text for a scrape. May run in another thread."""
        families = (*self._pools.render(), *self._tasks.render())
        return b"".join([generate_latest(self.registry), *(text.encode() for text in families)])

    def reconciled(self, result: str, seconds: float) -> None:
        """Record a reconciliation of a pool, its result and its duration."""
        self._reconciliations.labels(result).inc()
        self._duration.observe(seconds)

    def status_written(self) -> None:
        """Record a write of a status."""
        self._status_writes.inc()

    def requested(self, backend: str, operation: str, code: int | str) -> None:
        """Record a call and its HTTP status; code 0 means no answer."""
        self._requests.labels(backend, operation, str(code)).inc()

    def called(self, backend: str, operation: str, code: int, outcome: str, seconds: float) -> None:
        """Record a call to a task service: HTTP status (0 without an answer), outcome, and duration in seconds."""
        self.requested(backend, operation, code)
        kind = "long_poll" if operation in LONG_POLLS else "call"
        self._request_duration.labels(backend, operation, kind, outcome).observe(seconds)

    def scaled(self, key: Key, by: int, reason: str, seconds: float) -> None:
        """Record a write of replicas: the difference, the limit that binds the size, and seconds since the change."""
        self._of_pool(self._decisions, key, "up" if by > 0 else "down", reason or "demand").inc()
        if by > 0:
            self._of_pool(self._latency, key).observe(seconds)

    def lost(self, key: Key, reason: str) -> None:
        """Record a worker that ended without draining: oom, evicted, node, or gone (its pod or node was deleted)."""
        self._of_pool(self._lost, key, reason).inc()

    def observed(
        self, key: Key, spec: PoolSpec, observation: Observation, decision: Decision, status: Mapping[str, Any]
    ) -> None:
        """Set a pool's gauges."""
        self._pools.set(key, numbers(spec, observation, decision, status))
        self._tasks.show(key)

    def worked(self, key: Key, counts: TaskCounts) -> None:
        """Record what a worker did since its last report."""
        self._tasks.add(key, counts)

    def forget(self, key: Key) -> None:
        """Remove every series of a deleted pool."""
        self._pools.forget(key)
        self._tasks.forget(key)
        for metric, labels in self._series.pop(key, ()):
            metric.remove(*labels)

    def forget_all(self) -> None:
        """Remove the series of every pool: the next leader exports them. The task counts go on in the next term."""
        self._pools.clear()
        self._tasks.clear()
        self._series.clear()
        for metric in (self._decisions, self._lost, self._latency):
            metric.clear()

    def _of_pool(self, metric: M, key: Key, *labels: str) -> M:
        """Return a series of the pool and remember it: prometheus-client removes series only by their exact labels."""
        values = (*key, *labels)
        self._series.setdefault(key, set()).add((metric, values))
        return metric.labels(*values)
