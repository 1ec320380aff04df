"""PURE: messages of a topic as activations, and the problems of those that are none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from activity_worker.taskbroker.lifecycle.inflight import AdmissionError, admit
from activity_worker.taskbroker.protocol.activation import ActivationError
from activity_worker.taskbroker.store.positions import ReadActivation, TopicPartition

#: Headers of what the broker writes to the dead-letter topic: why, and where the message was.
REASON_HEADER: Final = "activitypool-reason"
ORIGIN_HEADER: Final = "activitypool-origin"
ATTEMPTS_HEADER: Final = "activitypool-attempts"
UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """A message and where it was."""

    partition: TopicPartition
    offset: int
    value: bytes | None = field(repr=False)
    key: bytes | None = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        """Where it was, as one word for people: TOPIC/PARTITION/OFFSET."""
        return f"{self.partition.topic}/{self.partition.number}/{self.offset}"


@dataclass(frozen=True, slots=True)
class UnreadableMessage:
    """A message that is no task; `problem` repeats nothing of it."""

    message: TopicMessage
    problem: str


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """What was read at once: activations by partition, each with its offset, and messages that are none.

    `next_offsets` are behind the last message of each partition, whatever that was.
    """

    activations: Mapping[TopicPartition, Sequence[ReadActivation]]
    unreadable: Sequence[UnreadableMessage]
    next_offsets: Mapping[TopicPartition, int]


def read_messages(messages: Iterable[TopicMessage], now: float) -> MessageBatch:
    """Return messages as activations that are admitted now; those of a partition come in the order of their offsets."""
    activations: dict[TopicPartition, list[ReadActivation]] = {}
    unreadable: list[UnreadableMessage] = []
    offsets: dict[TopicPartition, int] = {}
    for message in messages:
        offsets[message.partition] = message.offset + 1
        try:
            # A message without a value marks the end of a key in compacted topics; it is no task either.
            admitted = admit(message.value or b"", now)
        except (AdmissionError, ActivationError) as error:
            unreadable.append(UnreadableMessage(message, str(error) if message.value else "the message is empty"))
        else:
            activations.setdefault(message.partition, []).append(ReadActivation(message.offset, admitted))
    return MessageBatch(activations, unreadable, offsets)
