"""Retries and dead letters go to topics, and nothing is lost or run twice when a broker dies or Kafka is away."""

from collections.abc import Sequence

import pytest

from activity_worker.taskbroker.cli.broker_process import running_broker
from activity_worker.taskbroker.kafka.appender import PAUSE_SECONDS, TopicAppender, retry_id
from activity_worker.taskbroker.kafka.sender import Delivery, OutgoingMessage
from activity_worker.taskbroker.lifecycle.inflight import Outcome, admit
from activity_worker.taskbroker.lifecycle.upkeep import UpkeepStep
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState, parse_activation
from activity_worker.taskbroker.store import outbox
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.dead_letters import list_dead_letters
from activity_worker.taskbroker.store.statements import Report, TaskFilter
from tests.clock import Clock
from tests.eventually import eventually
from tests.integration.broker.kafka.conftest import Topics
from tests.integration.broker.kafka.test_intake import options
from tests.integration.broker.test_process import FAILURE, RETRY, client, eventually_task, task
from tests.unit.activity_worker.taskbroker.activations import activation_bytes

TOPICS = {UpkeepStep.APPEND_RETRIES: "retries", UpkeepStep.HANDLE_FAILURES: "dead"}
KEPT = RetryState(0, 3, OnAttemptsExceeded.DEADLETTER)
ONCE = RetryState(0, 3, OnAttemptsExceeded.DEADLETTER, at_most_once=True)


class ScriptedSender:
    """Kafka as a list of what it answers; each message that it got is kept."""

    def __init__(self, *answers: Delivery) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, OutgoingMessage]] = []

    async def send(self, topic: str, messages: Sequence[OutgoingMessage]) -> Sequence[Delivery]:
        self.sent += [(topic, message) for message in messages]
        return [self.answers.pop(0) if self.answers else Delivery.DELIVERED for _ in messages]

    def ids(self) -> list[str]:
        return [parse_activation(message.value or b"").id for _, message in self.sent]


async def upkeep(store: BrokerStore, appender: TopicAppender) -> None:
    """Do a round, as the loop does."""
    for step in UpkeepStep:
        if step in appender.steps:
            await appender.append(step)
            await store.upkeep(step, beside_topic=True)
        else:
            await store.upkeep(step)


async def reported(store: BrokerStore, outcome: Outcome, *tasks: tuple[str, RetryState | None]) -> None:
    """Add tasks, give them out, and report them."""
    await store.add([admit(activation_bytes(name, retry=retry), store.clock()) for name, retry in tasks])
    for name, _ in tasks:
        assert await store.take(TaskFilter()) is not None
        await store.report([Report(name, outcome)])


def appender_of(store: BrokerStore, sender: ScriptedSender, clock: Clock) -> TopicAppender:
    return TopicAppender(store, sender, TOPICS, lambda *_: None, monotonic=clock)


async def test_retry_leaves_the_store_when_kafka_has_acknowledged_it(store: BrokerStore, clock: Clock) -> None:
    sender = ScriptedSender()
    await reported(store, Outcome.RETRY, ("one", KEPT))
    row = await store.get("one")
    assert row is not None
    await upkeep(store, appender_of(store, sender, clock))
    assert await store.depths() == []
    ((topic, message),) = sender.sent
    sent = parse_activation(message.value or b"")
    assert (topic, sent.id) == ("retries", retry_id(row))
    assert sent.retry == RetryState(1, 3, OnAttemptsExceeded.DEADLETTER)


async def test_retry_of_a_task_at_most_once_stays_in_the_store(store: BrokerStore, clock: Clock) -> None:
    sender = ScriptedSender()
    await reported(store, Outcome.RETRY, ("once", ONCE))
    await upkeep(store, appender_of(store, sender, clock))
    assert sender.sent == []
    data = await store.take(TaskFilter())
    assert parse_activation(data or b"").retry == RetryState(1, 3, OnAttemptsExceeded.DEADLETTER, at_most_once=True)


async def test_dead_letter_goes_to_its_topic_and_the_rest_is_discarded(store: BrokerStore, clock: Clock) -> None:
    sender = ScriptedSender()
    await reported(store, Outcome.FAILURE, ("kept", KEPT), ("discarded", None))
    await upkeep(store, appender_of(store, sender, clock))
    ((topic, message),) = sender.sent
    assert (topic, parse_activation(message.value or b"").id) == ("dead", "kept")
    assert dict(message.headers) == {"activitypool-reason": "reported", "activitypool-attempts": "1"}
    assert await store.depths() == []
    assert await list_dead_letters(store) == []


async def test_broker_that_dies_before_the_row_goes_writes_the_same_id(store: BrokerStore, clock: Clock) -> None:
    first, second = ScriptedSender(), ScriptedSender()
    await reported(store, Outcome.RETRY, ("one", KEPT))
    # What the broker had done when it died: leased, and written.
    leased = await outbox.lease_for_topic(store, UpkeepStep.APPEND_RETRIES, 60.0)
    assert [one.inflight.id for one in leased] == ["one"]
    after = appender_of(store, second, clock)
    await upkeep(store, after)
    assert second.sent == []  # another broker may still be writing it
    clock.now += 60.0
    await upkeep(store, after)
    assert second.ids() == [retry_id(leased[0].inflight)]
    assert first.sent == []
    assert await store.depths() == []


async def test_failed_message_is_written_again_after_a_pause(store: BrokerStore, clock: Clock) -> None:
    sender = ScriptedSender(Delivery.FAILED, Delivery.DELIVERED)
    appender = appender_of(store, sender, clock)
    await reported(store, Outcome.RETRY, ("lost", KEPT), ("written", KEPT))
    await upkeep(store, appender)
    assert [depth.count for depth in await store.depths()] == [1]
    await reported(store, Outcome.FAILURE, ("bad", KEPT))
    await upkeep(store, appender)
    assert len(sender.sent) == 2  # nothing more within the pause
    clock.now += PAUSE_SECONDS
    await upkeep(store, appender)
    assert sender.sent[2][0] == "dead"
    clock.now += 60.0
    await upkeep(store, appender)
    assert sender.ids()[0] == sender.ids()[3]
    assert await store.depths() == []


async def test_message_that_the_topic_refuses_stays_in_the_store(store: BrokerStore, clock: Clock) -> None:
    sender = ScriptedSender(Delivery.REFUSED, Delivery.REFUSED)
    appender = appender_of(store, sender, clock)
    await reported(store, Outcome.RETRY, ("large", KEPT))
    await reported(store, Outcome.FAILURE, ("bad", KEPT))
    await upkeep(store, appender)
    assert [stored.letter.id for stored in await list_dead_letters(store)] == ["bad"]
    data = await store.take(TaskFilter())
    assert parse_activation(data or b"").retry == RetryState(1, 3, OnAttemptsExceeded.DEADLETTER)
    assert len(sender.sent) == 2


async def test_retry_travels_through_its_topic_and_dead_letter_to_its_own(url: str, topics: Topics) -> None:
    settings = topics.settings(retries=True, dead=True)
    async with running_broker(url, options(settings)) as port, client(port) as broker:
        await broker.producer.enqueue([task("one", retry=KEPT)])
        await broker.get()
        await broker.set("one", RETRY)
        again = await eventually_task(broker)
        assert again.retry == RetryState(1, 3, OnAttemptsExceeded.DEADLETTER)
        await broker.set(again.id, FAILURE)
        # Reads with a delay of the group: the retry's message is there when it was given out.
        assert [parse_activation(value or b"").id for value, _ in topics.cluster.read(topics.retries)] == [again.id]
        cluster = topics.cluster
        dead = await eventually("a dead letter is written", lambda: cluster.read(topics.dead))
    assert [(parse_activation(value or b"").id, headers["activitypool-reason"]) for value, headers in dead] == [
        (again.id, "reported")
    ]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_message_too_large_for_the_topic_is_refused_by_the_client(url: str, topics: Topics) -> None:
    settings = topics.settings(retries=True, more={"message.max.bytes": "2000"})
    async with running_broker(url, options(settings)) as port, client(port) as broker:
        await broker.producer.enqueue([task("one", args=["x" * 3000], retry=KEPT)])
        await broker.get()
        await broker.set("one", RETRY)
        assert (await eventually_task(broker)).retry == RetryState(1, 3, OnAttemptsExceeded.DEADLETTER)
