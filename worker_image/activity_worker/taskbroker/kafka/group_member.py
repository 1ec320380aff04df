"""One membership of a consumer group, as blocking calls for one thread.

Batches are read, kept and committed one after the other, so nothing is in flight when Kafka takes partitions away:
the group's other members go on behind the last batch that was kept.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from activity_worker.taskbroker.kafka import client
from activity_worker.taskbroker.kafka.received import TopicMessage
from activity_worker.taskbroker.kafka.settings import KafkaSettings
from activity_worker.taskbroker.kafka.start_position import PartitionFacts, StartPosition, start_position
from activity_worker.taskbroker.store.positions import KafkaGroup, TopicPartition

log = logging.getLogger(__name__)

#: The most messages of a batch: one transaction.
BATCH: Final = 500
#: Seconds to wait for the first message of a batch.
_POLL_SECONDS: Final = 0.5
#: Seconds for a question to the cluster.
_ANSWER_SECONDS: Final = 10.0


class GroupMember:
    """Joins the group with its first `read`; `close` leaves it. Methods raise confluent-kafka's KafkaException.

    `stored` returns the store's positions, in the thread of the reader, and may raise the store's errors. `replace`
    writes one that was beyond a partition's end. `failed` is called with names of errors.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        stored: Callable[[KafkaGroup], Mapping[TopicPartition, int]],
        replace: Callable[[KafkaGroup, TopicPartition, int | None], None],
        failed: Callable[[str], None],
    ) -> None:
        self._library = client.library()
        self._settings = settings
        self._stored = stored
        self._replace = replace
        self._failed = failed
        self._paused = False
        #: By each partition that is this member's: the offset of the next message, None before the first one.
        self._next: dict[TopicPartition, int | None] = {}
        #: Offsets of these partitions that Kafka has not taken yet: it takes none while the group is rebalanced.
        self._uncommitted: dict[TopicPartition, int] = {}
        self._cluster = ""
        self._consumer: Any = client.make_consumer(settings, failed)
        self._consumer.subscribe(
            list(settings.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    @property
    def group(self) -> KafkaGroup:
        """The group, and the cluster as far as it is known: before the first message it may not be."""
        return KafkaGroup(self._cluster, self._settings.group)

    def read(self) -> Sequence[TopicMessage]:
        """Return the next messages of this member's partitions, after `_POLL_SECONDS` perhaps none."""
        found = self._consumer.consume(1, _POLL_SECONDS)
        if found:
            found += self._consumer.consume(BATCH - 1, 0)
        messages = []
        for one in found:
            if one.error() is not None:
                self._note(one.error())
                continue
            partition = TopicPartition(one.topic(), one.partition())
            # A partition may go to another member while a batch of its messages is collected.
            if partition in self._next:
                messages.append(TopicMessage(partition, one.offset(), one.value(), one.key()))
                self._next[partition] = one.offset() + 1
        return messages

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Tell Kafka how far the store has read, also what it has refused before.

        The store knows it in any case; Kafka's own number is for people who look at the group's lag.
        """
        self._uncommitted |= {partition: offset for partition, offset in offsets.items() if partition in self._next}
        if not self._uncommitted:
            return
        positions = [self._at(partition, offset) for partition, offset in self._uncommitted.items()]
        try:
            self._consumer.commit(offsets=positions, asynchronous=False)
        except self._library.KafkaException as error:
            if error.args[0].code() != self._library.KafkaError.REBALANCE_IN_PROGRESS:
                self._note(error.args[0])
        else:
            self._uncommitted.clear()

    def pause(self, paused: bool) -> None:
        """Stop or resume reading; the member stays in the group meanwhile."""
        if paused != self._paused:
            self._paused = paused
            self._apply_pause()

    def lags(self) -> Mapping[TopicPartition, int]:
        """Return how many messages of each of this member's partitions are not read."""
        lags = {}
        for partition, offset in self._next.items():
            try:
                low, high = self._consumer.get_watermark_offsets(self._at(partition), timeout=1.0)
            except self._library.KafkaException as error:
                self._note(error.args[0])
                return {}
            lags[partition] = max(high - (low if offset is None else offset), 0)
        return lags

    def close(self) -> None:
        """Leave the group, after a last try to commit."""
        with contextlib.suppress(self._library.KafkaException):
            self.commit({})
        self._consumer.close()

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._cluster = consumer.cluster_id(_ANSWER_SECONDS) or ""
        stored = self._stored(self.group)
        starts = []
        for committed in consumer.committed(list(partitions), timeout=_ANSWER_SECONDS):
            if committed.error is not None:
                raise self._library.KafkaException(committed.error)
            partition = TopicPartition(committed.topic, committed.partition)
            begin = self._start(partition, stored.get(partition), committed.offset)
            self._next[partition] = begin.offset
            if begin.offset is not None and begin.offset != committed.offset:
                self._uncommitted[partition] = begin.offset
            offset = self._library.OFFSET_INVALID if begin.offset is None else begin.offset
            starts.append(self._at(partition, offset))
        consumer.assign(starts)
        self._apply_pause()
        log.info("partitions assigned", extra={"facts": {"partitions": _names(self._next)}})

    def _start(self, partition: TopicPartition, stored: int | None, committed: int) -> StartPosition:
        known = committed if committed >= 0 else None
        if stored is None:
            return start_position(PartitionFacts(None, known, 0, 0))
        low, high = self._consumer.get_watermark_offsets(self._at(partition), timeout=_ANSWER_SECONDS)
        begin = start_position(PartitionFacts(stored, known, low, high))
        if begin.warning:
            facts = {"topic": partition.topic, "partition": partition.number, "stored": stored, "committed": known}
            log.warning("%s", begin.warning, extra={"facts": {**facts, "oldest": low, "end": high}})
        if begin.replaces:
            self._replace(self.group, partition, begin.offset)
        return begin

    def _revoked(self, _: Any, partitions: Sequence[Any]) -> None:
        for one in partitions:
            partition = TopicPartition(one.topic, one.partition)
            self._next.pop(partition, None)
            self._uncommitted.pop(partition, None)
        log.info("partitions revoked", extra={"facts": {"left": _names(self._next)}})

    def _apply_pause(self) -> None:
        if partitions := [self._at(partition) for partition in self._next]:
            (self._consumer.pause if self._paused else self._consumer.resume)(partitions)

    def _note(self, error: Any) -> None:
        """Log an error; one that ends the client is raised."""
        self._failed(error.name())
        log.warning("Kafka reports an error", extra={"facts": {"error": error.name(), "text": error.str()}})
        if error.fatal():
            raise self._library.KafkaException(error)

    def _at(self, partition: TopicPartition, *offset: int) -> Any:
        return self._library.TopicPartition(partition.topic, partition.number, *offset)


def _names(partitions: Mapping[TopicPartition, int | None]) -> str:
    return ", ".join(f"{one.topic}/{one.number}" for one in sorted(partitions)) or "none"
