"""Where Apache Kafka's jars are. `python -m tests.prepare kafka` gets them; everything else only looks for them here.

To renew the lock, list the jars that `mvn dependency:copy-dependencies` gets for org.apache.kafka:kafka_2.13, and
their SHA-256.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from tests.cluster import paths
from tests.cluster.shell import MissingError

LOCK = Path(__file__).with_name("kafka.lock")


def locked() -> Iterator[tuple[str, str]]:
    """Yield the SHA-256 of each jar, and its path in a Maven repository."""
    for line in LOCK.read_text().splitlines():
        digest, path = line.split()
        yield digest, path


def home() -> Path:
    """Return the folder of the jars, which may not be there."""
    return paths.cache() / f"kafka-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"


def find() -> Path:
    """Return the folder of the jars. Raises MissingError."""
    if not home().exists():
        raise MissingError("Apache Kafka's jars are not there: run `python -m tests.prepare kafka`")
    return home()
