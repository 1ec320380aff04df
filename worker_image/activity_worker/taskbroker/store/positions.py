"""How far a store has read each partition of Kafka's topics, written with the activations themselves.

So an activation is kept once, however often its message is read: after a crash before Kafka heard of the position, and
by a broker that goes on after it has lost the partition to another one of the same store.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from activity_worker.database.engine import reading_engine
from activity_worker.taskbroker.lifecycle.inflight import Inflight
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.insertion import insert_new
from activity_worker.taskbroker.store.tables import KAFKA_POSITIONS, inflight_row


@dataclass(frozen=True, slots=True)
class KafkaGroup:
    """A consumer group, and the id of its Kafka cluster: offsets of another cluster mean nothing here."""

    cluster: str
    name: str


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a topic."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class ReadActivation:
    """An activation and its message's offset."""

    offset: int
    inflight: Inflight


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """How many activations of a batch are new, had an id that is in the store, or had been read before."""

    added: int = 0
    known: int = 0
    repeated: int = 0


async def stored_positions(store: BrokerStore, group: KafkaGroup) -> Mapping[TopicPartition, int]:
    """Return the offset of the next message of each partition that the group has read into this store."""
    chosen = select(KAFKA_POSITIONS).where(_is_of(group))
    async with reading_engine(store.engine).connect() as connection:
        rows = (await connection.execute(chosen)).all()
    return {TopicPartition(row.topic, row.partition): row.next_offset for row in rows}


async def replace_position(
    store: BrokerStore, group: KafkaGroup, partition: TopicPartition, offset: int | None
) -> None:
    """Write a position that may be before the stored one; None forgets it."""

    def replace(connection: Connection) -> None:
        connection.execute(delete(KAFKA_POSITIONS).where(_is_at(group, partition)))
        if offset is not None:
            _position_of(connection, group, partition, offset)

    await store.transactions.write(replace)


async def add_read(
    store: BrokerStore,
    group: KafkaGroup,
    read: Mapping[TopicPartition, Sequence[ReadActivation]],
    next_offsets: Mapping[TopicPartition, int],
) -> KeptBatch:
    """Keep activations of a batch and the positions behind it, all or none.

    Those before the stored position are left out: they were kept before, and may be over by now.
    """

    def add(connection: Connection) -> KeptBatch:
        now = store.clock()
        # In one order everywhere, so that two brokers never wait for each other.
        kept = [
            _add(connection, group, partition, read.get(partition, ()), next_offsets[partition], now)
            for partition in sorted(next_offsets)
        ]
        return KeptBatch(
            sum(one.added for one in kept), sum(one.known for one in kept), sum(one.repeated for one in kept)
        )

    return await store.transactions.write(add)


def _add(
    connection: Connection,
    group: KafkaGroup,
    partition: TopicPartition,
    read: Sequence[ReadActivation],
    next_offset: int,
    now: float,
) -> KeptBatch:
    first = read[0].offset if read else next_offset
    position = _position_of(connection, group, partition, min(first, next_offset))
    fresh = [one for one in read if one.offset >= position]
    added = insert_new(connection, [inflight_row(one.inflight) for one in fresh], now)
    if next_offset > position:
        connection.execute(update(KAFKA_POSITIONS).where(_is_at(group, partition)).values(next_offset=next_offset))
    return KeptBatch(added, len(fresh) - added, len(read) - len(fresh))


def _position_of(connection: Connection, group: KafkaGroup, partition: TopicPartition, first: int) -> int:
    """Return the stored position, `first` without one; no other broker can move it until the transaction ends."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    row = {
        "cluster": group.cluster,
        "consumer_group": group.name,
        "topic": partition.topic,
        "partition": partition.number,
        "next_offset": first,
    }
    connection.execute(dialect.insert(KAFKA_POSITIONS).values(row).on_conflict_do_nothing())
    found = select(KAFKA_POSITIONS.c.next_offset).where(_is_at(group, partition)).with_for_update()
    position: int = connection.execute(found).scalar_one()
    return position


def _is_of(group: KafkaGroup) -> ColumnElement[bool]:
    return and_(KAFKA_POSITIONS.c.cluster == group.cluster, KAFKA_POSITIONS.c.consumer_group == group.name)


def _is_at(group: KafkaGroup, partition: TopicPartition) -> ColumnElement[bool]:
    here = KAFKA_POSITIONS.c
    return and_(_is_of(group), here.topic == partition.topic, here.partition == partition.number)
