"""The flags of `activity-worker broker` about Kafka, and the settings that they and the environment make."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from activity_worker.config.reader import UsageError
from activity_worker.taskbroker.kafka.settings import KafkaSettings, KafkaSettingsError, read_options

SERVERS: Final = "ACTIVITY_BROKER_KAFKA_BOOTSTRAP_SERVERS"
TOPICS: Final = "ACTIVITY_BROKER_KAFKA_TOPICS"
GROUP: Final = "ACTIVITY_BROKER_KAFKA_GROUP"
RETRY_TOPIC: Final = "ACTIVITY_BROKER_KAFKA_RETRY_TOPIC"
DEAD_LETTER_TOPIC: Final = "ACTIVITY_BROKER_KAFKA_DEAD_LETTER_TOPIC"
OPTIONS: Final = "ACTIVITY_BROKER_KAFKA_OPTIONS"
DEFAULT_GROUP: Final = "taskbroker"
#: By flag: its variable, its value's name and its help.
_FLAGS: Final = {
    "kafka-bootstrap-servers": (SERVERS, "HOST:PORT,...", "brokers of a Kafka cluster; default: no Kafka"),
    "kafka-topics": (TOPICS, "NAMES", "topics to read tasks from, with commas between them"),
    "kafka-group": (GROUP, "NAME", f"the consumer group; default {DEFAULT_GROUP}"),
    "kafka-retry-topic": (RETRY_TOPIC, "NAME", "append retries there; default: keep them in the store"),
    "kafka-dead-letter-topic": (DEAD_LETTER_TOPIC, "NAME", "write dead letters there; default: into the store"),
}


def add_kafka_flags(broker: Any) -> None:
    """Add the flags to the command."""
    for flag, (variable, value, text) in _FLAGS.items():
        broker.add_argument(f"--{flag}", metavar=value, help=f"{text} (environment: {variable})")
    text = f"a JSON object of librdkafka's options, such as those of TLS and SASL (environment, the JSON: {OPTIONS})"
    broker.add_argument("--kafka-options-file", metavar="FILE", help=text)


def kafka_settings(args: Mapping[str, Any], env: Mapping[str, str]) -> KafkaSettings | None:
    """Return the settings of Kafka, None where no cluster is named. Raises UsageError."""
    found = {flag: args[flag.replace("-", "_")] or env.get(_FLAGS[flag][0]) or "" for flag in _FLAGS}
    servers = found["kafka-bootstrap-servers"]
    file = args["kafka_options_file"]
    if not servers:
        given = [f"--{flag}" for flag, value in found.items() if value] + ["--kafka-options-file"] * bool(file)
        if given:
            raise UsageError(f"{given[0]} needs a Kafka cluster: set --kafka-bootstrap-servers or {SERVERS}")
        return None
    topics = [name.strip() for name in found["kafka-topics"].split(",") if name.strip()]
    try:
        settings = KafkaSettings(
            bootstrap_servers=servers,
            topics=tuple(dict.fromkeys(topics)),
            group=found["kafka-group"] or DEFAULT_GROUP,
            retry_topic=found["kafka-retry-topic"],
            dead_letter_topic=found["kafka-dead-letter-topic"],
            options=_options(file, env),
        )
        settings.check()
    except KafkaSettingsError as error:
        raise UsageError(str(error)) from None
    return settings


def _options(file: str | None, env: Mapping[str, str]) -> Mapping[str, str]:
    origin = OPTIONS if file is None else f"--kafka-options-file {file}"
    try:
        text = env.get(OPTIONS, "") if file is None else Path(file).read_text(encoding="utf-8")
        return read_options(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{origin}: the file cannot be read: {getattr(error, 'strerror', 'it is no text')}") from None
    except KafkaSettingsError as error:
        raise UsageError(f"{origin}: {error}") from None
