"""Prometheus metrics of a broker's Kafka. Labels are topics, partitions and names of librdkafka's errors."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from activity_worker.taskbroker.store.positions import KeptBatch, TopicPartition


class KafkaMetrics:
    """Counts in `registry` what a broker reads from Kafka and writes to it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._read = Counter(
            "activity_broker_kafka_read",
            "Messages read: new, known (their id is in the store), repeated (read before), unreadable.",
            ["outcome"],
            registry=registry,
        )
        self._written = Counter(
            "activity_broker_kafka_written", "Messages that a topic has acknowledged.", ["topic"], registry=registry
        )
        self._errors = Counter("activity_broker_kafka_errors", "Errors, by name.", ["error"], registry=registry)
        self._lag = Gauge(
            "activity_broker_kafka_lag",
            "Messages of this broker's partitions that it has not read.",
            ["topic", "partition"],
            registry=registry,
        )
        self._paused = Gauge(
            "activity_broker_kafka_paused", "1 while the limits of the store stop reading.", registry=registry
        )

    def kept(self, batch: KeptBatch) -> None:
        """Count what was read."""
        for outcome, number in (("new", batch.added), ("known", batch.known), ("repeated", batch.repeated)):
            self._read.labels(outcome).inc(number)

    def unreadable(self, number: int) -> None:
        """Count messages that are no tasks."""
        self._read.labels("unreadable").inc(number)

    def wrote(self, topic: str, number: int) -> None:
        """Count acknowledged messages."""
        self._written.labels(topic).inc(number)

    def failed(self, error: str) -> None:
        """Count an error. May be called in any thread."""
        self._errors.labels(error).inc()

    def paused(self, paused: bool) -> None:
        """Show whether the limits stop reading."""
        self._paused.set(int(paused))

    def lags(self, lags: Mapping[TopicPartition, int]) -> None:
        """Show the lag of each of this broker's partitions; others are another broker's to show."""
        self._lag.clear()
        for partition, lag in lags.items():
            self._lag.labels(partition.topic, str(partition.number)).set(lag)
