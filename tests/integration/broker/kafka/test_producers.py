"""Tasks that producers write to Kafka: the published client's, and ours."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from activity_worker.taskbroker.cli.broker_process import running_broker
from activity_worker.taskbroker.kafka.task_producer import KafkaTaskProducer, NotWrittenError
from activity_worker.taskbroker.producer import NewTask
from activity_worker.taskbroker.protocol.parameters import Parameters, decode_parameters
from tests.eventually import eventually
from tests.integration.broker.kafka.conftest import Topics
from tests.integration.broker.kafka.test_intake import options
from tests.integration.broker.test_process import client, eventually_task, task
from tests.integration.broker.test_published_client import command, lines, variables
from tests.integration.worker.process import worker

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


async def test_our_worker_runs_what_the_published_client_writes(url: str, topics: Topics, tmp_path: Path) -> None:
    log = tmp_path / "log"
    made = command("produce", str(log), topics.cluster.servers, topics.tasks)
    await asyncio.to_thread(subprocess.run, made, env=variables(), capture_output=True, check=True, timeout=90)
    async with running_broker(url, options(topics.settings(retries=True))) as port:
        handlers = "tests.integration.broker.published_tasks:app"
        async with worker("run", handlers, "--taskbroker", f"127.0.0.1:{port}", "--slots", "1") as running:
            await eventually("four runs", lambda: len(lines(log)) == 4, details=lambda: str(running.lines))
    # The failing one was tried again through the retry topic.
    assert sorted(lines(log)) == ["1", "2 ('urgent', True)", "fail", "fail"]
    assert len(topics.cluster.read(topics.retries)) == 1


async def test_our_producer_writes_tasks_to_a_topic(url: str, topics: Topics) -> None:
    async with KafkaTaskProducer(topics.settings(), topics.tasks) as producer:
        await producer.enqueue([NewTask("mail", "send", args=[1], kwargs={"to": "me"}, id="one", expires=60)])
    async with running_broker(url, options(topics.settings())) as port, client(port) as broker:
        found = await eventually_task(broker)
        assert (found.id, found.namespace, found.taskname, found.expires) == ("one", "mail", "send", 60)
        assert decode_parameters(found.parameters, found.headers) == Parameters((1,), {"to": "me"})


async def test_task_too_large_for_the_topic_is_named(url: str, topics: Topics) -> None:
    settings = topics.settings(more={"message.max.bytes": "2000"})
    async with KafkaTaskProducer(settings, topics.tasks) as producer:
        with pytest.raises(NotWrittenError, match="1 tasks were not acknowledged") as raised:
            await producer.enqueue([task("small"), task("large", args=["x" * 3000])])
    assert (raised.value.ids, raised.value.refused) == (["large"], ["large"])
