"""Where a broker reads on, which messages are tasks, and which settings of Kafka are refused."""

import itertools

import pytest

from activity_worker.taskbroker.kafka.received import TopicMessage, read_messages
from activity_worker.taskbroker.kafka.settings import KafkaSettings, KafkaSettingsError, read_options
from activity_worker.taskbroker.kafka.start_position import PartitionFacts, StartPosition, start_position
from activity_worker.taskbroker.store.positions import TopicPartition
from tests.unit.activity_worker.taskbroker.activations import NOW, activation_bytes

SERVERS = "kafka:9092"


@pytest.mark.parametrize(
    ("stored", "committed", "expected"),
    [
        (None, None, StartPosition(None)),
        (None, 7, StartPosition(7)),
        (7, None, StartPosition(7)),
        (7, 5, StartPosition(7)),
        (7, 7, StartPosition(7)),
    ],
)
def test_store_knows_best_where_to_read_on(stored: int | None, committed: int | None, expected: StartPosition) -> None:
    assert start_position(PartitionFacts(stored, committed, low=0, high=10)) == expected


@pytest.mark.parametrize(
    ("facts", "offset", "replaces", "words"),
    [
        (PartitionFacts(5, 8, 0, 10), 8, False, "another store has the tasks"),
        (PartitionFacts(5, 5, 7, 10), 7, False, "were removed from the topic"),
        (PartitionFacts(50, None, 0, 10), None, True, "the topic was made again"),
        (PartitionFacts(50, 50, 0, 10), 10, True, "has lost its last messages"),
    ],
)
def test_surprise_is_named(facts: PartitionFacts, offset: int | None, replaces: bool, words: str) -> None:
    found = start_position(facts)
    assert (found.offset, found.replaces) == (offset, replaces)
    assert words in found.warning


def test_no_start_is_before_the_position_of_the_store() -> None:
    for stored, committed, low, size in itertools.product(range(6), (None, *range(6)), range(4), range(4)):
        facts = PartitionFacts(stored, committed, low, low + size)
        found = start_position(facts)
        if stored <= facts.high:
            assert found.offset is not None
            assert found.offset >= stored
            assert not found.replaces
        else:
            assert found.replaces
            assert found.offset in {None, facts.high}


def test_messages_are_tasks_in_the_order_of_their_offsets() -> None:
    one, two = TopicPartition("tasks", 0), TopicPartition("tasks", 1)
    batch = read_messages(
        [
            TopicMessage(one, 4, activation_bytes("a")),
            TopicMessage(two, 9, b"\xff"),
            TopicMessage(one, 5, activation_bytes("b")),
            TopicMessage(one, 6, activation_bytes("")),
            TopicMessage(two, 10, None),
        ],
        NOW,
    )
    assert [(read.offset, read.inflight.id) for read in batch.activations[one]] == [(4, "a"), (5, "b")]
    assert batch.next_offsets == {one: 7, two: 11}
    assert [(bad.message.origin, bad.problem) for bad in batch.unreadable] == [
        ("tasks/1/9", "the bytes are not a TaskActivation"),
        ("tasks/0/6", "id is empty: every task needs one"),
        ("tasks/1/10", "the message is empty"),
    ]


def test_settings_that_name_a_topic_are_taken() -> None:
    KafkaSettings("a:9092, b:9093,[::1]:9092", ("tasks",)).check()
    KafkaSettings(SERVERS, retry_topic="retries").check()
    KafkaSettings(SERVERS, ("tasks",), retry_topic="tasks", dead_letter_topic="dead").check()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (KafkaSettings("a b", ("tasks",)), "--kafka-bootstrap-servers is 'a b': expected HOST:PORT"),
        (KafkaSettings("a:99999", ("tasks",)), "expected HOST:PORT"),
        (KafkaSettings("a:1,", ("tasks",)), "expected HOST:PORT"),
        (KafkaSettings(SERVERS), "--kafka-bootstrap-servers without a topic"),
        (KafkaSettings(SERVERS, ("a/b",)), "--kafka-topics: 'a/b' is no name of a topic"),
        (KafkaSettings(SERVERS, ("tasks",), group=""), "--kafka-group is empty"),
        (KafkaSettings(SERVERS, ("tasks",), dead_letter_topic="tasks"), "dead letters would run again"),
        (KafkaSettings(SERVERS, ("a",), retry_topic="b", dead_letter_topic="b"), "dead letters would run again"),
    ],
)
def test_unusable_setting_is_named_with_the_fix(settings: KafkaSettings, words: str) -> None:
    with pytest.raises(KafkaSettingsError) as raised:
        settings.check()
    assert words in str(raised.value)


def test_options_have_the_names_of_librdkafka() -> None:
    assert read_options(" ") == {}
    text = '{"sasl.mechanism": "PLAIN", "fetch.min.bytes": 5, "enable.ssl.certificate.verification": false}'
    assert read_options(text) == {
        "sasl.mechanism": "PLAIN",
        "fetch.min.bytes": "5",
        "enable.ssl.certificate.verification": "false",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ruby", "not JSON: expected an object"),
        ('["ruby"]', "not a JSON object"),
        ('{"sasl.password": ["ruby"]}', "sasl.password is no text, number, true or false"),
        ('{"group.id": "ruby"}', "group.id is set by --kafka-group"),
        ('{"bootstrap.servers": "ruby"}', "bootstrap.servers is set by --kafka-bootstrap-servers"),
        ('{"enable.auto.commit": true}', "enable.auto.commit is set by the broker"),
        ('{"acks": "ruby"}', "acks is set by the broker"),
    ],
)
def test_options_that_would_lose_tasks_are_refused_without_their_values(text: str, words: str) -> None:
    with pytest.raises(KafkaSettingsError) as raised:
        read_options(text)
    assert words in str(raised.value)
    assert "ruby" not in str(raised.value)
