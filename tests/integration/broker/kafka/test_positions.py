"""A message of a partition is kept once, also if another broker reads it again."""

from collections.abc import Sequence

import pytest

from activity_worker.taskbroker.lifecycle.inflight import admit
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.positions import (
    KafkaGroup,
    KeptBatch,
    ReadActivation,
    TopicPartition,
    add_read,
    replace_position,
    stored_positions,
)
from tests.unit.activity_worker.taskbroker.activations import NOW, activation_bytes

GROUP = KafkaGroup("cluster", "group")
ONE, TWO = TopicPartition("tasks", 0), TopicPartition("tasks", 1)


def read(offsets: Sequence[int]) -> list[ReadActivation]:
    return [ReadActivation(offset, admit(activation_bytes(f"task-{offset}"), NOW)) for offset in offsets]


async def number(store: BrokerStore) -> int:
    return sum(depth.count for depth in await store.depths())


async def test_batch_that_is_read_again_changes_nothing(store: BrokerStore) -> None:
    assert await add_read(store, GROUP, {ONE: read([4, 5])}, {ONE: 6}) == KeptBatch(added=2)
    assert await stored_positions(store, GROUP) == {ONE: 6}
    assert await add_read(store, GROUP, {ONE: read([4, 5, 6])}, {ONE: 7}) == KeptBatch(added=1, repeated=2)
    assert await number(store) == 3


async def test_broker_that_lost_its_partition_adds_nothing_twice(store: BrokerStore) -> None:
    await add_read(store, GROUP, {ONE: read([0, 1])}, {ONE: 2})
    # The partition's new owner has read on; the frozen one comes back with an old batch.
    await add_read(store, GROUP, {ONE: read([2, 3, 4, 5])}, {ONE: 6})
    assert await add_read(store, GROUP, {ONE: read([2, 3])}, {ONE: 4}) == KeptBatch(repeated=2)
    assert await stored_positions(store, GROUP) == {ONE: 6}


async def test_position_moves_beyond_messages_that_are_no_tasks(store: BrokerStore) -> None:
    await add_read(store, GROUP, {}, {ONE: 3, TWO: 9})
    assert await stored_positions(store, GROUP) == {ONE: 3, TWO: 9}


async def test_positions_are_a_groups_in_one_cluster(store: BrokerStore) -> None:
    await add_read(store, GROUP, {ONE: read([0])}, {ONE: 1})
    for other in KafkaGroup("another", "group"), KafkaGroup("cluster", "another"):
        assert await stored_positions(store, other) == {}
        assert await add_read(store, other, {ONE: read([0])}, {ONE: 1}) == KeptBatch(known=1)


async def test_position_can_go_back_for_a_topic_that_was_made_again(store: BrokerStore) -> None:
    await add_read(store, GROUP, {ONE: read([50])}, {ONE: 51})
    await replace_position(store, GROUP, ONE, 10)
    assert await stored_positions(store, GROUP) == {ONE: 10}
    await replace_position(store, GROUP, ONE, None)
    assert await stored_positions(store, GROUP) == {}
    assert await add_read(store, GROUP, {ONE: read([0])}, {ONE: 1}) == KeptBatch(added=1)


async def test_failed_batch_keeps_neither_tasks_nor_position(store: BrokerStore) -> None:
    wrong = ReadActivation(1, admit(activation_bytes("task-1"), NOW))
    object.__setattr__(wrong.inflight, "state", None)
    with pytest.raises(Exception, match="activitypool_activations"):
        await add_read(store, GROUP, {ONE: [*read([0]), wrong]}, {ONE: 2})
    assert await number(store) == 0
    assert await stored_positions(store, GROUP) == {}
