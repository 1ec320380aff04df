"""Brokers that are killed while they read, and brokers that share a group: nothing is lost, and nothing runs twice."""

import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from activity_worker.taskbroker.cli.broker_process import running_broker
from activity_worker.taskbroker.protocol.activation import RetryState
from activity_worker.taskbroker.protocol.channel import TaskbrokerError
from activity_worker.taskbroker.store.broker_store import BrokerStore
from tests.eventually import eventually
from tests.integration.broker.kafka.conftest import Topics
from tests.integration.broker.kafka.test_intake import options, until_count
from tests.integration.broker.test_process import COMPLETE, Client, client
from tests.servers.taskbroker import BrokerProcess
from tests.unit.activity_worker.taskbroker.activations import activation_bytes

TASKS, KILLS, SEED = 400, 4, 19
ONCE = RetryState(0, 1, at_most_once=True)


async def work(broker: Client, runs: Counter[str], most: int) -> None:
    """Take and complete tasks until the limit is reached, or a call has no answer."""
    for _ in range(most):
        try:
            task = await broker.get()
            runs[task.id] += 1
            await broker.set(task.id, COMPLETE)
        except TaskbrokerError:
            return


@pytest.mark.timeout(300)
async def test_killed_broker_reads_every_task_once(url: str, topics: Topics, tmp_path: Path) -> None:
    dice, runs = random.Random(SEED), Counter[str]()
    flags = ["--kafka-bootstrap-servers", topics.cluster.servers, "--kafka-topics", topics.tasks]
    flags += ["--kafka-group", topics.group, "--deadline-pause-seconds", "0", "--grace-seconds", "0"]
    (tmp_path / "options.json").write_text('{"session.timeout.ms": 6000}')
    process = BrokerProcess(url, tmp_path, [*flags, "--kafka-options-file", str(tmp_path / "options.json")])
    ids = [f"task-{number}" for number in range(TASKS)]
    for number in range(0, TASKS, 4):
        # Small batches of four partitions, so that a kill meets the broker between any two of its steps.
        some = [activation_bytes(one, retry=ONCE, processing_deadline_duration=1) for one in ids[number : number + 4]]
        topics.cluster.write(topics.tasks, some, partition=number % 4)
    try:
        for _ in range(KILLS):
            await process.start()
            async with client(process.port) as broker:
                before = len(runs)
                wanted = min(before + dice.randint(1, 80), TASKS)

                async def enough(broker: Client = broker, wanted: int = wanted) -> bool:
                    await work(broker, runs, 20)
                    return len(runs) >= wanted

                await eventually(f"{wanted} tasks ran", enough)
            process.end(signal.SIGKILL)
        await process.start()
        async with client(process.port) as broker:

            async def all_read() -> bool:
                await work(broker, runs, 100)
                return sum(topics.cluster.committed(topics.group, topics.tasks).values()) == TASKS

            await eventually("every message is committed", all_read)
            await work(broker, runs, TASKS)
    finally:
        process.stop()
    # A task at most once whose answer was lost in a kill has failed instead.
    assert set(runs) <= set(ids)
    assert max(runs.values()) == 1
    assert len(runs) >= TASKS - KILLS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_partitions_move_between_brokers_of_a_store(url: str, topics: Topics) -> None:
    messages = [activation_bytes(f"task-{number}") for number in range(300)]
    store = await BrokerStore.open(url)
    settings = topics.settings()
    try:
        async with running_broker(url, options(settings)):
            topics.cluster.write(topics.tasks, messages[:100])
            await until_count(store, 100)
            async with running_broker(url, options(settings)):
                topics.cluster.write(topics.tasks, messages[100:200])
                await until_count(store, 200)
            topics.cluster.write(topics.tasks, messages[200:])
            await until_count(store, 300)
            await eventually(
                "Kafka knows all positions",
                lambda: sum(topics.cluster.committed(topics.group, topics.tasks).values()) == 300,
            )
    finally:
        await store.close()
