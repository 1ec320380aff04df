"""`activity-worker broker` refuses what it cannot use of Kafka, with the fix."""

import logging
import sys
from pathlib import Path

import pytest

from activity_worker import cli
from activity_worker.taskbroker.kafka.client import make_producer
from activity_worker.taskbroker.kafka.settings import KafkaSettings

SERVERS = ("--kafka-bootstrap-servers", "127.0.0.1:1")
READS = (*SERVERS, "--kafka-topics", "tasks")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the default store be in a folder of the test."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("flags", "options", "words"),
    [
        (("--kafka-topics", "tasks"), None, "--kafka-topics needs a Kafka cluster: set --kafka-bootstrap-servers"),
        (SERVERS, None, "--kafka-bootstrap-servers without a topic"),
        ((*READS, "--kafka-options-file", "absent"), None, "absent: the file cannot be read: No such file"),
        (READS, "ruby", "ACTIVITY_BROKER_KAFKA_OPTIONS: not JSON"),
        (READS, '{"sasl.mechnism": "ruby"}', 'No such configuration property: "sasl.mechnism"'),
        (READS, '{"security.protocol": "ruby"}', "security.protocol"),
        (
            READS,
            '{"security.protocol": "ssl", "ssl.key.pem": "ruby"}',
            "one that holds a secret, a key or a certificate is wrong",
        ),
        ((*SERVERS, "--kafka-retry-topic", "a"), '{"linger.ms": "ruby"}', "queue.buffering.max.ms"),
    ],
)
def test_unusable_flag_or_option_ends_the_command(
    flags: tuple[str, ...],
    options: str | None,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if options is not None:
        monkeypatch.setenv("ACTIVITY_BROKER_KAFKA_OPTIONS", options)
    assert cli.main(["broker", *flags]) == 2
    assert words in capsys.readouterr().err


def test_line_that_differs_in_numbers_is_logged_once() -> None:
    made = make_producer(KafkaSettings("127.0.0.1:1", retry_topic="a"), lambda _: None)
    del made
    log = logging.getLogger("activity_worker.taskbroker.kafka.client.librdkafka")
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    setattr(handler, "emit", seen.append)  # noqa: B010 - a method is replaced
    log.addHandler(handler)
    try:
        for number in range(5):
            log.error("ruby %s failed", number)
        log.error("another")
    finally:
        log.removeHandler(handler)
    assert [record.getMessage() for record in seen] == ["ruby 0 failed", "another"]


def test_missing_extra_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert cli.main(["broker", *READS]) == 1
    assert "pip install 'activitypool[taskbroker,kafka]'" in capsys.readouterr().err
