"""The tests' Kafka: one cluster, and for each test topics and a group of its own.

The cluster is librdkafka's mock; `ACTIVITYPOOL_KAFKA=apache` makes it a broker of Apache Kafka.
"""

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from activity_worker.taskbroker.kafka.settings import KafkaSettings
from tests.servers.apache_kafka import apache_kafka
from tests.servers.kafka import KafkaCluster, mock_cluster

_numbers = itertools.count()


@dataclass(frozen=True)
class Topics:
    """A cluster, and the names of a test's topics and group in it."""

    cluster: KafkaCluster
    tasks: str
    retries: str
    dead: str
    group: str

    def settings(
        self, *, retries: bool = False, dead: bool = False, more: Mapping[str, str] | None = None
    ) -> KafkaSettings:
        """Return the settings of a broker that reads the tasks."""
        return KafkaSettings(
            bootstrap_servers=self.cluster.servers,
            topics=(self.tasks, self.retries) if retries else (self.tasks,),
            group=self.group,
            retry_topic=self.retries if retries else "",
            dead_letter_topic=self.dead if dead else "",
            options={"session.timeout.ms": "6000", "topic.metadata.refresh.interval.ms": "500", **(more or {})},
        )


@pytest.fixture(scope="session")
def cluster() -> Iterator[KafkaCluster]:
    """A cluster of one broker."""
    kind = os.environ.get("ACTIVITYPOOL_KAFKA", "mock")
    with {"mock": mock_cluster, "apache": apache_kafka}[kind]() as running:
        yield running


@pytest.fixture
def topics(cluster: KafkaCluster) -> Topics:
    """New names in the cluster."""
    number = next(_numbers)
    return Topics(cluster, f"tasks-{number}", f"retries-{number}", f"dead-{number}", f"group-{number}")
