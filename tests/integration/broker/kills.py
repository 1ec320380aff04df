"""Brokers, workers and handlers' processes that are killed or frozen at random, until every task is over.

`python -m tests.endurance broker` is the long run. The judge reads what handlers wrote to a file of their own.
"""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerError
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.dead_letters import list_dead_letters
from tests.eventually import eventually
from tests.integration.broker.kills_handlers import ATTEMPTS
from tests.integration.broker.kills_judge import expires, histories, is_at_most_once, judge
from tests.integration.worker.process import WorkerProcess, worker
from tests.servers.taskbroker import BrokerProcess

HANDLERS = "tests.integration.broker.kills_handlers:app"
#: How often a broker gives a task out.
MAX_ATTEMPTS = 5
BROKER_OPTIONS = ("--deadline-pause-seconds", "0", "--grace-seconds", "1", "--max-attempts", str(MAX_ATTEMPTS))
#: The tasks' deadline: long for a handler that does nothing on a busy machine.
DEADLINE_SECONDS = 3
#: Beyond the tasks' deadline, the grace, and a round of upkeep.
FROZEN_SECONDS = 7.0
BATCH = 50


@dataclass(frozen=True)
class Run:
    """The parameters of a run. `kills` are of brokers, of workers, of handlers' processes, and freezes of brokers."""

    url: str
    folder: Path
    tasks: int
    brokers: int = 1
    workers: int = 2
    slots: int = 4
    kills: int = 10
    seed: int = 1
    longest_pause_seconds: float = 2.0
    seconds: float = 3600.0


@dataclass
class Found:
    """The result of a run; `wrong` has a sentence for each failed task."""

    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    letters: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Field:
    """The processes of a run; it starts them, kills them and freezes them."""

    def __init__(self, asked: Run) -> None:
        self.asked = asked
        self.dice = random.Random(asked.seed)
        self.found = Found()
        self.log = asked.folder / "handlers.log"
        self.brokers = [BrokerProcess(asked.url, asked.folder, BROKER_OPTIONS) for _ in range(asked.brokers)]
        self.workers: dict[int, WorkerProcess] = {}
        self.over = asyncio.Event()

    @property
    def addresses(self) -> list[str]:
        """The brokers' addresses."""
        return [f"127.0.0.1:{broker.port}" for broker in self.brokers]

    async def produce(self) -> None:
        """Enqueue every task, at any broker, with the same ids again where an answer is lost."""
        for first in range(0, self.asked.tasks, BATCH):
            some = [self._task(number) for number in range(first, min(first + BATCH, self.asked.tasks))]
            while True:
                settings = ChannelSettings(self.dice.choice(self.addresses))
                with contextlib.suppress(TaskbrokerError):
                    async with TaskProducer(settings, retry_seconds=5.0) as producer:
                        await producer.enqueue(some)
                        break

    async def keep_worker(self, number: int) -> None:
        """Run a worker, and its successor when it has ended."""
        run = ("run", HANDLERS, "--taskbroker", ",".join(self.addresses), "--taskbroker-namespace", "kills")
        while not self.over.is_set():
            async with worker(*run, "--slots", str(self.asked.slots)) as running:
                self.workers[number] = running
                ending = asyncio.create_task(running.process.wait())
                over = asyncio.create_task(self.over.wait())
                await asyncio.wait({ending, over}, return_when=asyncio.FIRST_COMPLETED)
                over.cancel()

    async def kill(self) -> None:
        """Kill and freeze processes, each a random while after the last one."""
        ways = {"broker": self._kill_broker, "frozen": self._freeze_broker, "worker": self._kill_worker}
        ways |= {"child": self._kill_child}
        while sum(self.found.kills.values()) < self.asked.kills and not self.over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.over.wait(), self.dice.uniform(0.05, self.asked.longest_pause_seconds))
            way = self.dice.choice(list(ways))
            if await ways[way]():
                self.found.kills[way] += 1

    async def _kill_broker(self) -> bool:
        broker = self.dice.choice(self.brokers)
        broker.end(signal.SIGKILL)
        await broker.start()
        return True

    async def _freeze_broker(self) -> bool:
        broker = self.dice.choice(self.brokers)
        assert broker.running is not None
        broker.running.send_signal(signal.SIGSTOP)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.over.wait(), FROZEN_SECONDS)
        finally:
            broker.running.send_signal(signal.SIGCONT)
        return True

    async def _kill_worker(self) -> bool:
        running = self.workers.get(self.dice.randrange(self.asked.workers))
        if running is None or running.process.returncode is not None:
            return False
        running.process.kill()
        return True

    async def _kill_child(self) -> bool:
        running = self.workers.get(self.dice.randrange(self.asked.workers))
        children = [] if running is None or running.process.returncode is not None else running.children()
        if not children:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.dice.choice(children), signal.SIGKILL)
        return True

    def _task(self, number: int) -> NewTask:
        once = is_at_most_once(number)
        return NewTask(
            "kills",
            "play",
            kwargs={"path": str(self.log), "n": number},
            id=f"task-{number}",
            headers={"n": str(number)},
            processing_deadline=DEADLINE_SECONDS,
            retry=RetryState(0, 1 if once else ATTEMPTS, OnAttemptsExceeded.DEADLETTER, at_most_once=once),
            delay=4 if expires(number) else None,
            expires=2 if expires(number) else None,
        )


async def run(asked: Run) -> Found:
    """Let producers, brokers and workers do all tasks while processes die, and judge the end."""
    began = time.monotonic()
    all_of_it = Field(asked)
    store = await BrokerStore.open(asked.url)
    try:
        async with brokers_of(all_of_it), asyncio.TaskGroup() as group:
            for number in range(asked.workers):
                group.create_task(all_of_it.keep_worker(number))
            producing = group.create_task(all_of_it.produce())
            group.create_task(all_of_it.kill())

            async def empty() -> bool:
                return producing.done() and not await store.depths()

            await eventually("the store is empty", empty, seconds=asked.seconds, every_seconds=0.5)
            all_of_it.over.set()
        letters = [stored.letter for stored in await list_dead_letters(store, limit=asked.tasks + 1)]
    finally:
        await store.close()
    found, lines = all_of_it.found, all_of_it.log.read_text().splitlines()
    found.seconds = time.monotonic() - began
    found.runs = sum(history.runs for history in histories(lines).values())
    found.letters = Counter(letter.reason.value for letter in letters)
    found.wrong = judge(asked.tasks, lines, letters, MAX_ATTEMPTS)
    return found


@contextlib.asynccontextmanager
async def brokers_of(all_of_it: Field) -> AsyncIterator[None]:
    """Run the brokers."""
    try:
        for broker in all_of_it.brokers:
            await broker.start()
        yield
    finally:
        for broker in all_of_it.brokers:
            broker.stop()
