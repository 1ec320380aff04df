"""A producer's side of Kafka: writes tasks to a topic that a broker reads."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from activity_worker.taskbroker.kafka.sender import Delivery, OutgoingMessage, TopicSender
from activity_worker.taskbroker.kafka.settings import KafkaSettings
from activity_worker.taskbroker.producer import NewTask
from activity_worker.taskbroker.protocol.activation import message_of

__all__ = ["KafkaTaskProducer", "NotWrittenError"]


class NotWrittenError(Exception):
    """Kafka has not acknowledged tasks. `ids` are theirs: they may be in the topic all the same.

    `refused` are among them and too large for the topic.
    """

    def __init__(self, topic: str, ids: Sequence[str], refused: Sequence[str]) -> None:
        fix = "write them again with the same ids" if len(refused) < len(ids) else "they are too large for the topic"
        super().__init__(f"{len(ids)} tasks were not acknowledged by {topic}: {fix}")
        self.ids, self.refused = ids, refused


class KafkaTaskProducer:
    """Writes tasks to one topic, as the published client does. `async with` closes it.

    Raises KafkaSettingsError and KafkaMissingError.
    """

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._topic = topic
        self._sender = TopicSender(settings, lambda _: None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop the connection; each `enqueue` has waited for its tasks."""
        await self._sender.close()

    async def enqueue(self, tasks: Sequence[NewTask]) -> None:
        """Write tasks, and return when all replicas in sync have them. Raises NotWrittenError after 12 s.

        Delays and expiries count from now, not from when a broker reads the task.
        """
        now = time.time()
        messages = [
            OutgoingMessage(message_of(replace(task.activation(), received_at=now)).SerializeToString())
            for task in tasks
        ]
        found = list(zip(tasks, await self._sender.send(self._topic, messages), strict=True))
        if left := [task.id for task, delivery in found if delivery is not Delivery.DELIVERED]:
            refused = [task.id for task, delivery in found if delivery is Delivery.REFUSED]
            raise NotWrittenError(self._topic, left, refused)
