"""A Kafka cluster for tests: librdkafka's mock cluster, whose brokers listen on ports of this machine.

Other processes use it by its address. It has groups, offsets and idempotent producers. It makes a topic of four
partitions when one is first used, keeps no data beyond its process, and has no calls to make or describe topics.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.servers.parent import die_with_parent

#: Prints the address of a mock cluster, and keeps it until the end of the input.
_PROGRAM = """
import sys
from confluent_kafka import Producer
cluster = Producer({"test.mock.num.brokers": 1, "log_level": 0})
found = cluster.list_topics(timeout=30).brokers.values()
print(",".join(f"{one.host}:{one.port}" for one in found), flush=True)
sys.stdin.read()
"""


class KafkaCluster:
    """A cluster at an address, and what tests do with it from outside."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def write(self, topic: str, values: Sequence[bytes | None], *, partition: int = -1) -> None:
        """Write messages and wait until they are acknowledged."""
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all"})
        errors: list[Any] = []
        where: Any = {} if partition < 0 else {"partition": partition}
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error), **where)
        assert producer.flush(30) == 0
        assert errors == [None] * len(values)

    def read(self, topic: str) -> list[tuple[bytes | None, Mapping[str, str]]]:
        """Return the values and headers of all messages that a topic has now."""
        options = {"bootstrap.servers": self.servers, "group.id": "look", "enable.auto.commit": False}
        consumer = Consumer({**options, "log_level": 0})
        try:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            ends = {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), 10)[1] for number in partitions
            }
            left = sum(ends.values())
            consumer.assign([TopicPartition(topic, number, 0) for number in ends])
            found: list[tuple[bytes | None, Mapping[str, str]]] = []
            while len(found) < left:
                for message in consumer.consume(left - len(found), 10):
                    assert message.error() is None, message.error()
                    pairs: Any = message.headers() or []
                    found.append((message.value(), {key: value.decode() for key, value in pairs}))
        finally:
            consumer.close()
        return found

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offset of each partition that has one."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        try:
            numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            found = consumer.committed([TopicPartition(topic, number) for number in numbers], timeout=10)
            return {one.partition: one.offset for one in found if one.offset >= 0}
        finally:
            consumer.close()


@contextmanager
def mock_cluster() -> Iterator[KafkaCluster]:
    """Run a mock cluster."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - nothing else runs in this process's threads
    )
    assert process.stdout is not None
    try:
        servers = process.stdout.readline().strip()
        assert servers, "the mock cluster has ended"
        yield KafkaCluster(servers)
    finally:
        process.kill()
        process.communicate()
