"""A broker reads tasks from Kafka's topics, each message once into its store."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from activity_worker.taskbroker.broker.limits import StoreLimits
from activity_worker.taskbroker.cli.broker_process import BrokerOptions, running_broker
from activity_worker.taskbroker.kafka import client as kafka_client
from activity_worker.taskbroker.kafka.group_member import GroupMember
from activity_worker.taskbroker.kafka.settings import KafkaSettings
from activity_worker.taskbroker.store.broker_store import BrokerStore
from tests.eventually import eventually
from tests.integration.broker.kafka.conftest import Topics
from tests.integration.broker.test_process import client, task
from tests.servers.kafka import mock_cluster
from tests.unit.activity_worker.taskbroker.activations import activation_bytes


def options(settings: KafkaSettings, **more: object) -> BrokerOptions:
    return BrokerOptions("127.0.0.1:0", kafka=settings, **more)  # type: ignore[arg-type]


async def count(store: BrokerStore) -> int:
    return sum(depth.count for depth in await store.depths())


async def until_count(store: BrokerStore, number: int) -> None:
    async def reached() -> bool:
        return await count(store) >= number

    await eventually(f"{number} tasks are in the store", reached)
    assert await count(store) == number


async def test_tasks_of_a_topic_are_given_to_workers(url: str, topics: Topics) -> None:
    sent = {f"task-{number}" for number in range(20)}
    topics.cluster.write(topics.tasks, [activation_bytes(one) for one in sorted(sent)])
    async with running_broker(url, options(topics.settings())) as port, client(port) as broker:
        store = await BrokerStore.open(url)
        try:
            await until_count(store, 20)
        finally:
            await store.close()
        assert {(await broker.get()).id for _ in sent} == sent
    assert sum(topics.cluster.committed(topics.group, topics.tasks).values()) == 20


class RefusedOnce:
    """A consumer whose first commit comes while the group is rebalanced."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._refusals = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def commit(self, **arguments: Any) -> Any:
        """Commit, except for the first time."""
        if self._refusals:
            self._refusals -= 1
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        return self._consumer.commit(**arguments)


async def test_refused_commit_is_made_again_without_a_message(
    url: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = kafka_client.make_consumer
    monkeypatch.setattr(kafka_client, "make_consumer", lambda *arguments: RefusedOnce(make(*arguments)))
    topics.cluster.write(topics.tasks, [activation_bytes(f"task-{number}") for number in range(5)], partition=1)
    async with running_broker(url, options(topics.settings())):
        await eventually(
            "Kafka knows the position", lambda: topics.cluster.committed(topics.group, topics.tasks) == {1: 5}
        )


async def test_message_is_read_once_though_kafka_hears_of_no_commit(
    url: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.cluster.write(topics.tasks, [activation_bytes(f"task-{number}") for number in range(5)], partition=1)
    with monkeypatch.context() as silent:
        silent.setattr(GroupMember, "commit", lambda *_: None)
        async with running_broker(url, options(topics.settings())) as port, client(port) as broker:
            store = await BrokerStore.open(url)
            try:
                await until_count(store, 5)
                # Over, and gone from the store: only the position tells that it was read.
                for _ in range(5):
                    await broker.set((await broker.get()).id, 5)
                await eventually("the store is empty", lambda: _is_empty(store))
            finally:
                await store.close()
    assert topics.cluster.committed(topics.group, topics.tasks) == {}
    topics.cluster.write(topics.tasks, [activation_bytes("last")], partition=1)
    async with running_broker(url, options(topics.settings())):
        store = await BrokerStore.open(url)
        try:
            await until_count(store, 1)
            assert await store.get("last") is not None
        finally:
            await store.close()
    assert topics.cluster.committed(topics.group, topics.tasks) == {1: 6}


async def _is_empty(store: BrokerStore) -> bool:
    return await count(store) == 0


async def test_same_id_in_two_messages_is_one_task(url: str, topics: Topics) -> None:
    topics.cluster.write(topics.tasks, [activation_bytes("one")] * 3 + [activation_bytes("two")])
    async with running_broker(url, options(topics.settings())):
        store = await BrokerStore.open(url)
        try:
            await until_count(store, 2)
        finally:
            await store.close()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_unreadable_messages_are_put_aside(url: str, topics: Topics) -> None:
    bad = [b"\xff\xff", None, activation_bytes("", namespace="mail")]
    topics.cluster.write(topics.tasks, [*bad, activation_bytes("good")], partition=2)
    async with running_broker(url, options(topics.settings(dead=True))):
        store = await BrokerStore.open(url)
        try:
            await until_count(store, 1)
        finally:
            await store.close()
    found = topics.cluster.read(topics.dead)
    assert sorted(value or b"" for value, _ in found) == sorted(value or b"" for value in bad)
    assert {headers["activitypool-reason"] for _, headers in found} == {"unreadable"}
    assert {headers["activitypool-origin"] for _, headers in found} == {
        f"{topics.tasks}/2/{offset}" for offset in range(3)
    }


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_full_store_stops_reading_until_workers_make_room(url: str, topics: Topics) -> None:
    topics.cluster.write(topics.tasks, [activation_bytes("first")], partition=0)
    limited = options(topics.settings(), limits=StoreLimits(max_pending=1))
    async with running_broker(url, limited) as port, client(port) as broker:
        store = await BrokerStore.open(url)
        try:
            await until_count(store, 1)
            topics.cluster.write(topics.tasks, [activation_bytes("second")], partition=0)

            async def only_first() -> bool:
                return await store.get("second") is None

            for _ in range(20):
                assert await only_first()
            await broker.set((await broker.get()).id, 5)

            async def second() -> bool:
                return await store.get("second") is not None

            await eventually("the second task is read", second)
        finally:
            await store.close()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_broker_serves_its_store_while_kafka_is_away(url: str, tmp_path: Path) -> None:
    with mock_cluster() as lost:
        settings = KafkaSettings(lost.servers, ("tasks",))
    async with running_broker(url, options(settings)) as port, client(port) as broker:
        assert await broker.producer.enqueue([task("one")]) == 1
        assert (await broker.get()).id == "one"
