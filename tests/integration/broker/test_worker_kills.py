"""Workers and their handlers' processes are killed at any point: nothing is lost, and once at most means once."""

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from activity_worker.taskbroker.cli.broker_process import BrokerOptions, running_broker
from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol.activation import RetryState
from activity_worker.taskbroker.protocol.channel import ChannelSettings
from activity_worker.taskbroker.store.broker_store import BrokerPolicy, BrokerStore
from tests.eventually import eventually
from tests.integration.worker.process import WorkerProcess, worker

TASKS, KILLS = 150, 5
SEED = 19
#: The tasks that run at most once.
ONCE = {f"plain {n}" for n in range(0, TASKS, 4)}
HANDLERS = "tests.integration.broker.worker_handlers:app"
#: No task comes to an end by the number of times that it is given out.
OPTIONS = BrokerOptions(
    "127.0.0.1:0", policy=BrokerPolicy(grace_seconds=0.0, max_attempts=1000), deadline_pause_seconds=0.0
)


def lines(log: Path) -> list[str]:
    """What handlers wrote, without process ids: `plain N` for each run."""
    return [line.rpartition(" ")[0] for line in log.read_text().splitlines()] if log.exists() else []


def certain(log: Path) -> set[str]:
    """Return which of the tasks that may run more than once have run. A kill can end the others before they run."""
    return set(lines(log)) - ONCE


async def until_certain(log: Path, number: int) -> None:
    """Wait until `number` tasks that may run more than once have run."""
    await eventually(f"{number} tasks ran", lambda: len(certain(log)) >= number, seconds=90.0)


@pytest.mark.timeout(400)
async def test_every_task_runs_and_those_at_most_once_never_twice(url: str, tmp_path: Path) -> None:
    log, dice = tmp_path / "log", random.Random(SEED)
    async with running_broker(url, OPTIONS) as port:
        address = f"127.0.0.1:{port}"
        store = await BrokerStore.open(url)
        async with TaskProducer(ChannelSettings(address)) as producer:
            await producer.enqueue(
                [
                    NewTask(
                        "shop",
                        "plain",
                        kwargs={"path": str(log), "n": n},
                        processing_deadline=3,
                        retry=RetryState(max_attempts=1, at_most_once=n % 4 == 0),
                    )
                    for n in range(TASKS)
                ]
            )
        run = ("run", HANDLERS, "--taskbroker", address, "--slots", "2", "--max-tasks-per-process", "20")
        for _ in range(KILLS):
            async with worker(*run) as running:
                await until_certain(log, min(len(certain(log)) + dice.randint(1, 20), TASKS - len(ONCE)))
                kill(running, dice)
                await asyncio.sleep(0)
        async with worker(*run):

            async def empty() -> bool:
                return not await store.depths()

            await eventually("the store is empty", empty, seconds=90.0)
        await store.close()

    runs = lines(log)
    assert {f"plain {n}" for n in range(TASKS)} - ONCE <= set(runs)
    assert all(runs.count(line) <= 1 for line in ONCE)


def kill(running: WorkerProcess, dice: random.Random) -> None:
    """Kill a handler's process, or the worker."""
    children = running.children()
    victim = dice.choice([running.process.pid, *children])
    os.kill(victim, signal.SIGKILL)
