"""A broker of Apache Kafka, in KRaft mode: the real one, for `make kafka`."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests import packages
from tests.servers import kafka_jars, server_user
from tests.servers.kafka import KafkaCluster
from tests.servers.ports import free_port
from tests.servers.start import end, start

#: Seconds for a call of the client while the broker starts.
_ANSWER_SECONDS = 2.0


class ApacheKafka(KafkaCluster):
    """A broker in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._port, self._controller = free_port(), free_port()
        super().__init__(f"127.0.0.1:{self._port}")
        self._folder = folder
        self._running: subprocess.Popen[bytes] | None = None

    def _java(self) -> list[str]:
        # A small heap and the first compiler only: a test's broker has little to do, and starts sooner so.
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [str(packages.find("java")), *options, "-cp", f"{self._folder / 'jars'}/*"]

    def start(self) -> None:
        """Format the storage if it is new, start the broker, and wait until it answers."""
        settings = self._folder / "server.properties"
        if not settings.exists():
            # The server's user may not read this user's cache.
            shutil.copytree(kafka_jars.find(), self._folder / "jars")
            settings.write_text(self._settings())
            tool = [
                *self._java(),
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "AAAAAAAAAAAAAAAAAAAAAQ",
                "-c",
                str(settings),
            ]
            subprocess.run(tool, cwd=self._folder, check=True, capture_output=True, **server_user.unprivileged())
        command = [*self._java(), "kafka.Kafka", str(settings)]
        self._running = start("Apache Kafka", command, self._folder, self._answers)

    def stop(self) -> None:
        """End the broker at once."""
        if self._running is not None:
            end(self._running, signal.SIGKILL)
            self._running = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the broker."""
        assert self._running is not None
        self._running.send_signal(number)

    def _answers(self) -> bool:
        try:
            found = AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(
                timeout=_ANSWER_SECONDS
            )
        except KafkaException:
            return False
        return len(found.brokers) == 1

    def _settings(self) -> str:
        controller = f"127.0.0.1:{self._controller}"
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / "data"),
            # As the mock cluster.
            "num.partitions": "4",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())


@contextmanager
def apache_kafka() -> Iterator[ApacheKafka]:
    """Run a broker."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-"))
    server_user.own(folder)
    broker = ApacheKafka(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
