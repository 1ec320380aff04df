"""The steps of upkeep that write to topics: retries and dead letters."""

import hashlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from activity_worker.taskbroker.kafka.received import ATTEMPTS_HEADER, REASON_HEADER
from activity_worker.taskbroker.kafka.sender import Delivery, OutgoingMessage, Sender
from activity_worker.taskbroker.kafka.settings import KafkaSettings
from activity_worker.taskbroker.lifecycle.inflight import Inflight
from activity_worker.taskbroker.lifecycle.upkeep import UpkeepStep, advance
from activity_worker.taskbroker.store import outbox
from activity_worker.taskbroker.store.broker_store import BATCH, BrokerStore
from activity_worker.taskbroker.store.outbox import LeasedActivation

log = logging.getLogger(__name__)

#: Seconds for which an activation is one broker's to write: five times what a call to Kafka takes at most.
LEASE_SECONDS: Final = 60.0
#: Seconds in which nothing is written after a failure, so that the other steps of upkeep go on in time.
PAUSE_SECONDS: Final = 30.0


def topics_of(settings: KafkaSettings) -> Mapping[UpkeepStep, str]:
    """Return the topic of each step that has one."""
    topics = {
        UpkeepStep.APPEND_RETRIES: settings.retry_topic,
        UpkeepStep.HANDLE_FAILURES: settings.dead_letter_topic,
    }
    return {step: topic for step, topic in topics.items() if topic}


class TopicAppender:
    """Writes to topics what upkeep has for them. The activation is complete when Kafka has acknowledged its message."""

    def __init__(
        self,
        store: BrokerStore,
        sender: Sender,
        topics: Mapping[UpkeepStep, str],
        wrote: Callable[[str, int], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._sender = sender
        self._topics = topics
        self._wrote = wrote
        self._monotonic = monotonic
        self._not_before = float("-inf")

    @property
    def steps(self) -> Collection[UpkeepStep]:
        """The steps that have a topic."""
        return self._topics.keys()

    async def append(self, step: UpkeepStep) -> int:
        """Write what a step has for its topic; return how many activations it moved. Raises the store's errors.

        A message that the topic does not take stays in the store. After another failure nothing is written for
        `PAUSE_SECONDS`, and the messages are written later, under the same ids.
        """
        moved = 0
        while self._monotonic() >= self._not_before:
            leased = await outbox.lease_for_topic(self._store, step, LEASE_SECONDS)
            if leased:
                moved += await self._write(step, leased)
            if len(leased) < BATCH:
                break
        return moved

    async def _write(self, step: UpkeepStep, leased: Sequence[LeasedActivation]) -> int:
        topic, now = self._topics[step], self._store.clock()
        found = await self._sender.send(topic, [outgoing(step, one.inflight, now) for one in leased])
        numbers = {
            delivery: [one.number for one, each in zip(leased, found, strict=True) if each is delivery]
            for delivery in Delivery
        }
        if delivered := numbers[Delivery.DELIVERED]:
            await outbox.complete(self._store, step, delivered)
            self._wrote(topic, len(delivered))
        if refused := numbers[Delivery.REFUSED]:
            log.warning("a topic refuses messages: they stay in the store", extra={"facts": {"topic": topic}})
            await self._store.upkeep_of(step, refused)
        if numbers[Delivery.FAILED]:
            self._not_before = self._monotonic() + PAUSE_SECONDS
        return len(delivered) + len(refused)


def outgoing(step: UpkeepStep, inflight: Inflight, now: float) -> OutgoingMessage:
    """Return what a step writes to its topic for an activation. The same activation's retry always has the same id."""
    change = advance(step, inflight, now, max_attempts=0, new_id=retry_id(inflight))
    if change.appended is not None:
        return OutgoingMessage(change.appended.data)
    letter = change.dead_letter
    if letter is None:
        raise ValueError(f"activation {inflight.id} has nothing for a topic in the step {step.name}")
    headers = [(REASON_HEADER, letter.reason.value), (ATTEMPTS_HEADER, str(letter.attempts))]
    return OutgoingMessage(letter.data, headers)


def retry_id(inflight: Inflight) -> str:
    """Return the id of an activation's retry: another one for each activation, also where an id is used again."""
    return hashlib.sha256(f"{inflight.id}\0{inflight.added_at!r}".encode()).hexdigest()[:32]
