"""confluent-kafka, where it is installed: its clients for a broker's settings."""

import logging
import re
import time
from collections.abc import Callable
from typing import Any, Final

from activity_worker.taskbroker.kafka.settings import KafkaSettings, KafkaSettingsError

log = logging.getLogger(__name__)

#: Seconds until a message that Kafka does not acknowledge counts as failed; a later try writes it again.
MESSAGE_SECONDS: Final = 10.0
#: Seconds in which a line of librdkafka that differs in numbers alone is logged once.
_QUIET_SECONDS: Final = 60.0
_SECRET_WORDS: Final = ("password", "secret", "key", "pem", "token", "jaas")


class KafkaMissingError(Exception):
    """The library is not installed; the message says how to install it."""


def library() -> Any:
    """Return the module `confluent_kafka`. Raises KafkaMissingError."""
    try:
        import confluent_kafka  # noqa: PLC0415 - an extra, and only where Kafka is asked for
    except ImportError as error:
        fix = "pip install 'activitypool[taskbroker,kafka]'"
        raise KafkaMissingError(f"Kafka needs packages that are not installed: {fix} ({error.name})") from None
    return confluent_kafka


def make_consumer(settings: KafkaSettings, failed: Callable[[str], None]) -> Any:
    """Return a consumer of the group, which commits no offset by itself. Raises KafkaSettingsError.

    `failed` is called with the name of each of the client's errors, in the thread that uses the consumer.
    """
    own = {
        "group.id": settings.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "partition.assignment.strategy": "range,roundrobin",
        "error_cb": lambda error: failed(error.name()),
    }
    # Tasks that were there before the group are tasks; and a topic that is made later is found within seconds.
    usual = {"auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 30_000}
    return _made("Consumer", settings, {**usual, **settings.options, **own})


def make_producer(settings: KafkaSettings, failed: Callable[[str], None]) -> Any:
    """Return a producer whose messages are acknowledged by all replicas in sync. Raises KafkaSettingsError."""
    own = {
        "acks": "all",
        "enable.idempotence": True,
        "message.timeout.ms": int(MESSAGE_SECONDS * 1000),
        "error_cb": lambda error: failed(error.name()),
    }
    usual = {"linger.ms": 5, "compression.type": "none"}
    return _made("Producer", settings, {**usual, **settings.options, **own})


def _made(kind: str, settings: KafkaSettings, options: dict[str, Any]) -> Any:
    made = library()
    logged = logging.getLogger(f"{__name__}.librdkafka")
    logged.addFilter(_NEWS)
    try:
        return getattr(made, kind)({**options, "bootstrap.servers": settings.bootstrap_servers}, logger=logged)
    except (made.KafkaException, TypeError, ValueError) as error:
        raise KafkaSettingsError(f"the options of Kafka's client cannot be used: {_words(error)}") from None


class _News(logging.Filter):
    """Leaves out that an option is for the other kind of client, and what was logged within `_QUIET_SECONDS`.

    Both kinds get the same options; and while Kafka is away, librdkafka logs each of its tries, many a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log it."""
        text = re.sub(r"[0-9]+", "", record.getMessage())
        if "property and will be ignored by this" in text:
            return False
        now = time.monotonic()
        self._logged = {other: at for other, at in self._logged.items() if now - at < _QUIET_SECONDS}
        return self._logged.setdefault(text, now) == now


_NEWS: Final = _News()


def _words(error: Exception) -> str:
    """Return what librdkafka says, which for an option that may be a secret is only that it is wrong."""
    cause = error.args[0] if error.args else error
    text = cause.str() if hasattr(cause, "str") else str(cause)
    if any(word in text.lower() for word in _SECRET_WORDS):
        return "one that holds a secret, a key or a certificate is wrong"
    return str(text)
