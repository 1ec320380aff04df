"""Writing messages to a topic, with Kafka's acknowledgement of each."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, Final, Protocol

from activity_worker.taskbroker.kafka import client
from activity_worker.taskbroker.kafka.settings import KafkaSettings

log = logging.getLogger(__name__)

#: Seconds for all messages of a call: one that is not acknowledged by then has failed.
SEND_SECONDS: Final = client.MESSAGE_SECONDS + 2.0


class Delivery(Enum):
    """What became of a message."""

    #: The topic has it.
    DELIVERED = auto()
    #: The topic does not take it, today or later: it is too large.
    REFUSED = auto()
    #: Nothing is known: another try may write it twice.
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to write."""

    value: bytes | None = field(repr=False)
    headers: Sequence[tuple[str, str]] = ()
    key: bytes | None = field(default=None, repr=False)


class Sender(Protocol):
    """Writes messages to topics."""

    async def send(self, topic: str, messages: Sequence[OutgoingMessage]) -> Sequence[Delivery]:
        """Write messages, and return what became of each."""
        ...


class TopicSender:
    """Writes messages through a producer of its own, in a thread of its own. `close` it at the end.

    `failed` is called with the name of each error, in that thread. Raises KafkaSettingsError and KafkaMissingError.
    """

    def __init__(self, settings: KafkaSettings, failed: Callable[[str], None]) -> None:
        self._settings = settings
        self._failed = failed
        self._library = client.library()
        self._refusals = {self._library.KafkaError.MSG_SIZE_TOO_LARGE, self._library.KafkaError.INVALID_RECORD}
        self._producer: Any = client.make_producer(settings, failed)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-sender")

    async def send(self, topic: str, messages: Sequence[OutgoingMessage]) -> Sequence[Delivery]:
        """See Sender. It takes `SEND_SECONDS` at most, and raises nothing."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._send, topic, messages)

    async def close(self) -> None:
        """Drop the producer: each `send` has waited for its messages."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)

    def _send(self, topic: str, messages: Sequence[OutgoingMessage]) -> Sequence[Delivery]:
        found = [Delivery.FAILED] * len(messages)
        if self._producer is None:
            self._producer = client.make_producer(self._settings, self._failed)
        for place, message in enumerate(messages):
            told = partial(self._told, topic, found, place)
            try:
                self._producer.produce(
                    topic, message.value, message.key, headers=list(message.headers), on_delivery=told
                )
            except self._library.KafkaException as error:
                self._told(topic, found, place, error.args[0], None)
            except BufferError:
                self._failed("_QUEUE_FULL")
        if self._producer.flush(SEND_SECONDS):
            # They must not be written after the caller has heard that they were not.
            self._producer.purge()
            self._producer.flush(1.0)
        if Delivery.FAILED in found:
            # An idempotent producer may be unusable after a message that it has lost.
            self._drop()
        return found

    def _told(self, topic: str, found: list[Delivery], place: int, error: Any, _: Any) -> None:
        if error is None:
            found[place] = Delivery.DELIVERED
            return
        self._failed(error.name())
        if error.code() in self._refusals:
            found[place] = Delivery.REFUSED
        log.log(
            logging.WARNING if place == 0 else logging.DEBUG,
            "a message was not written to its topic",
            extra={"facts": {"topic": topic, "error": error.name()}},
        )

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(self._library.KafkaException):
                producer.purge()
                producer.flush(0.5)
