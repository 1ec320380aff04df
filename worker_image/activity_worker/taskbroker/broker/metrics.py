"""Prometheus metrics of a broker. Labels are namespaces, applications and small enumerations: no ids."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.store.broker_store import QueueDepth

#: A call is one or two statements.
_CALL_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 10)


class BrokerMetrics(Collector):
    """Counts in `registry` what a broker does, and shows there what it last counted in its store."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._depths: Sequence[QueueDepth] = ()
        # A queue that was seen once stays, with zeros: a gauge that vanishes keeps its last value in an alert.
        self._queues: set[tuple[str, str]] = set()
        self._counted_at: float | None = None
        registry.register(self)
        self.calls = Counter(
            "activity_broker_calls", "Calls, by call and gRPC code.", ["call", "code"], registry=registry
        )
        self.call_seconds = Histogram(
            "activity_broker_call_duration_seconds",
            "How long calls took, by call.",
            ["call"],
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self.added = Counter("activity_broker_added", "Activations that producers added.", registry=registry)
        self.given_out = Counter(
            "activity_broker_given_out", "Times that an activation was given to a worker.", registry=registry
        )
        self.waiting_calls = Gauge(
            "activity_broker_waiting_calls", "Calls that wait here for a task.", registry=registry
        )
        self.pushes = Counter(
            "activity_broker_pushes",
            "Pushes of an activation to a worker, by outcome; `unknown` is one that the worker may have accepted.",
            ["outcome"],
            registry=registry,
        )
        self.reports = Counter(
            "activity_broker_reports",
            "Workers' reports, by outcome; `changed` is no for an unknown task, or after another report.",
            ["outcome", "changed"],
            registry=registry,
        )
        self.moved = Counter(
            "activity_broker_upkeep_moved", "Activations that upkeep moved, by step.", ["step"], registry=registry
        )
        self.upkeep_failures = Counter(
            "activity_broker_upkeep_failures", "Rounds of upkeep that the store ended.", registry=registry
        )

    def counted(self, depths: Sequence[QueueDepth]) -> None:
        """Take a new count of the store."""
        self._depths, self._counted_at = depths, self._clock()
        self._queues.update((depth.application, depth.namespace) for depth in depths)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield what the store holds; nothing before the first count."""
        if self._counted_at is None:
            return
        now = self._clock()
        number = GaugeMetricFamily(
            "activity_broker_activations",
            "Activations in the store.",
            labels=["application", "namespace", "state"],
        )
        oldest = GaugeMetricFamily(
            "activity_broker_oldest_pending_age_seconds",
            "How long the oldest pending activation could have been given out.",
            labels=["application", "namespace"],
        )
        found = {(depth.application, depth.namespace, depth.state): depth for depth in self._depths}
        for application, namespace in sorted(self._queues):
            for state in ActivationState:
                depth = found.get((application, namespace, state))
                number.add_metric([application, namespace, state], depth.count if depth else 0)
            pending = found.get((application, namespace, ActivationState.PENDING))
            oldest.add_metric([application, namespace], max(now - pending.oldest_due_at, 0.0) if pending else 0.0)
        yield number
        yield oldest
        age = max(now - self._counted_at, 0.0)
        yield GaugeMetricFamily("activity_broker_count_age_seconds", "Age of the counts of the store.", value=age)
