"""PURE: which Kafka a broker uses, and the options of its client, by the names that librdkafka has for them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

#: Options that a flag sets, each with that flag.
_FLAGS: Final = {
    "bootstrap.servers": "--kafka-bootstrap-servers",
    "metadata.broker.list": "--kafka-bootstrap-servers",
    "group.id": "--kafka-group",
}
#: Options on which it depends that no task is lost or run twice.
_FIXED: Final = frozenset(
    {
        "acks",
        "auto.commit.enable",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.protocol",
        "group.remote.assignor",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "partition.assignment.strategy",
        "request.required.acks",
        "transactional.id",
    }
)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_HOST_PORT: Final = re.compile(r"(?:[A-Za-z]+://)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")


class KafkaSettingsError(ValueError):
    """A setting of Kafka cannot be used; the message names it and the fix, and repeats no option's value."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """A Kafka cluster and its topics.

    The broker reads tasks from `topics` as a member of `group`. Retries go to `retry_topic` and dead letters to
    `dead_letter_topic`, where these are named, else into the store. `options` are librdkafka's.
    """

    bootstrap_servers: str
    topics: Sequence[str] = ()
    group: str = "taskbroker"
    retry_topic: str = ""
    dead_letter_topic: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def check(self) -> None:
        """Raise KafkaSettingsError for what cannot be used."""
        for server in self.bootstrap_servers.split(","):
            found = _HOST_PORT.fullmatch(server.strip())
            if found is None or int(found[1] or 0) > 65_535:
                expected = "HOST:PORT, with commas between several, such as kafka-0:9092,kafka-1:9092"
                raise KafkaSettingsError(
                    f"--kafka-bootstrap-servers is {self.bootstrap_servers!r}: expected {expected}"
                )
        if not self.group:
            raise KafkaSettingsError("--kafka-group is empty: name the group of the brokers that share the topics")
        named = {"--kafka-topics": self.topics, "--kafka-retry-topic": [self.retry_topic]}
        for flag, topics in {**named, "--kafka-dead-letter-topic": [self.dead_letter_topic]}.items():
            for topic in filter(None, topics):
                if topic in {".", ".."} or not _TOPIC.fullmatch(topic):
                    expected = "at most 249 characters of A-Z, a-z, 0-9, '.', '_' and '-'"
                    raise KafkaSettingsError(f"{flag}: {topic!r} is no name of a topic: expected {expected}")
        if not (self.topics or self.retry_topic or self.dead_letter_topic):
            expected = "--kafka-topics, --kafka-retry-topic or --kafka-dead-letter-topic"
            raise KafkaSettingsError(f"--kafka-bootstrap-servers without a topic: give {expected} as well")
        if self.dead_letter_topic and self.dead_letter_topic in (*self.topics, self.retry_topic):
            meaning = "dead letters would run again: give them a topic of their own"
            raise KafkaSettingsError(
                f"--kafka-dead-letter-topic is {self.dead_letter_topic!r}, which tasks are: {meaning}"
            )


def read_options(text: str) -> Mapping[str, str]:
    """Return the options of a JSON object, {} for an empty text. Raises KafkaSettingsError."""
    if not text.strip():
        return {}
    example = '{"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise KafkaSettingsError(f"not JSON: expected an object such as {example}") from None
    if not isinstance(found, dict):
        raise KafkaSettingsError(f"not a JSON object: expected one such as {example}")
    return {name: _option(name, value) for name, value in found.items()}


def _option(name: str, value: Any) -> str:
    if flag := _FLAGS.get(name):
        raise KafkaSettingsError(f"{name} is set by {flag}: take it out of the options")
    if name in _FIXED:
        raise KafkaSettingsError(f"{name} is set by the broker: it decides whether tasks are lost or run twice")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise KafkaSettingsError(f"{name} is no text, number, true or false")
