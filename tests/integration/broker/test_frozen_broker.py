"""Two brokers on one PostgreSQL, of which one is frozen beyond every deadline and then goes on."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from sqlalchemy import text

from activity_worker.database.engine import connect
from activity_worker.taskbroker.consumer import COMPLETED, GivenTask, TaskConsumer
from activity_worker.taskbroker.lifecycle.inflight import Inflight
from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState, parse_activation
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerError
from activity_worker.taskbroker.protocol.messages import WORKER_SERVICE, PushTaskRequest
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.dead_letters import list_dead_letters
from tests.eventually import eventually
from tests.servers.postgres import new_database
from tests.servers.taskbroker import BrokerProcess

OPTIONS = ("--deadline-pause-seconds", "0", "--grace-seconds", "0", "--max-attempts", "50")
TASKS, CLIENTS = 60, 4


def freeze(broker: BrokerProcess, number: signal.Signals) -> None:
    """Stop a broker where it is, or let it go on."""
    assert broker.running is not None
    broker.running.send_signal(number)


@asynccontextmanager
async def two_brokers(server: str, folder: Path) -> AsyncIterator[tuple[BrokerProcess, BrokerProcess, str]]:
    """Run two brokers on an empty database, whose URL is the third value."""
    url = await new_database(server)
    brokers = BrokerProcess(url, folder, OPTIONS), BrokerProcess(url, folder, OPTIONS)
    try:
        for broker in brokers:
            await broker.start()
        yield *brokers, url
    finally:
        for broker in brokers:
            freeze(broker, signal.SIGCONT)
            broker.stop()


@asynccontextmanager
async def consumer(broker: BrokerProcess) -> AsyncIterator[TaskConsumer]:
    made = TaskConsumer([settings(broker)])
    try:
        yield made
    finally:
        await made.close()


def settings(broker: BrokerProcess) -> ChannelSettings:
    return ChannelSettings(f"127.0.0.1:{broker.port}")


def new_task(task_id: str, *, once: bool) -> NewTask:
    retry = RetryState(0, 1, OnAttemptsExceeded.DEADLETTER, at_most_once=once)
    return NewTask("shop", "pack", id=task_id, processing_deadline=1, retry=retry)


class Clients:
    """Workers that take tasks from a broker, count the runs themselves, and report."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.over = False

    async def work(self, broker: BrokerProcess) -> None:
        async with consumer(broker) as asking:

            async def next_task() -> GivenTask | bool | None:
                return self.over or await asking.get()

            while not self.over:
                found = await eventually("there is a task, or all are over", next_task, tolerate=(TaskbrokerError,))
                while isinstance(found, GivenTask):
                    self.runs[found.activation.id] += 1
                    try:
                        found = await asking.report(found, COMPLETED, fetch=True)
                    except TaskbrokerError:
                        # The broker is frozen. What was not reported comes again after its deadline.
                        found = None


@pytest.mark.timeout(400)
async def test_frozen_broker_loses_nothing_and_repeats_no_task_at_most_once(server: str, tmp_path: Path) -> None:
    tasks = [new_task(f"task-{number}", once=number % 2 == 0) for number in range(TASKS)]
    clients = Clients()
    async with two_brokers(server, tmp_path) as (first, second, url), TaskProducer(settings(first)) as producer:
        # Tasks that the frozen broker has given out, half of them at most once; their workers never report.
        held = [new_task(f"held-{number}", once=number % 2 == 0) for number in range(4)]
        await producer.enqueue(held)
        async with consumer(first) as asking:
            for _ in held:
                given = await asking.get()
                assert given is not None
                clients.runs[given.activation.id] += 1
        await producer.enqueue(tasks)
        store = await BrokerStore.open(url)
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(clients.work(first))
            await eventually("some tasks have run", lambda: len(clients.runs) > len(held) + 4)
            freeze(first, signal.SIGSTOP)
            for _ in range(CLIENTS):
                group.create_task(clients.work(second))

            async def given_out_again() -> bool:
                return all(clients.runs[task.id] > 1 for task in held[1::2])

            # Beyond their deadlines, by the other broker's upkeep.
            await eventually("tasks of the frozen broker run again", given_out_again)
            freeze(first, signal.SIGCONT)

            async def empty() -> bool:
                return not await store.depths()

            await eventually("the store is empty", empty)
            clients.over = True
        letters = {stored.letter.id: stored.letter for stored in await list_dead_letters(store)}
        await store.close()

    for task in (*held, *tasks):
        assert task.retry is not None
        if task.retry.at_most_once:
            assert clients.runs[task.id] <= 1
            assert clients.runs[task.id] == 1 or letters[task.id].reason == "deadline"
        else:
            assert clients.runs[task.id] >= 1
            assert task.id not in letters
    assert {task.id for task in held[::2]} <= set(letters)
    assert all(letter.attempts == 1 for letter in letters.values())


@pytest.mark.timeout(400)
async def test_locks_of_a_frozen_broker_end(server: str, tmp_path: Path) -> None:
    async with two_brokers(server, tmp_path) as (first, second, url), TaskProducer(settings(first)) as producer:
        await producer.enqueue([new_task("one", once=False)])
        engine = await connect(url)
        async with consumer(first) as asking, consumer(second) as other:
            given = await asking.get()
            assert given is not None
            async with engine.connect() as connection:
                await connection.execute(text("SELECT 1 FROM activitypool_activations FOR UPDATE"))
                # The first broker's report waits for this row, within a transaction.
                reporting = asyncio.create_task(asking.report(given, COMPLETED, fetch=True))

                async def waits() -> bool:
                    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    async with engine.connect() as looking:
                        return bool((await looking.execute(text(waiting))).scalar_one())

                await eventually("the broker waits for the row", waits)
                freeze(first, signal.SIGSTOP)
                await connection.rollback()
            # The frozen broker has the row now. Its worker reports to the other one, again and again.
            same = GivenTask(settings(second).address, given.activation)

            async def reported() -> bool:
                await other.report(same, COMPLETED, fetch=False)
                return True

            await eventually("the other broker takes the report", reported, tolerate=(TaskbrokerError,))
            freeze(first, signal.SIGCONT)
            await asyncio.gather(reporting, return_exceptions=True)
            # The first broker goes on, with another connection.
            await producer.enqueue([new_task("two", once=False)])

            async def again() -> bool:
                found = await asking.get()
                return found is not None and found.activation.id == "two"

            await eventually("the first broker gives out tasks", again, tolerate=(TaskbrokerError,))
        await engine.dispose()


class PushedWorker:
    """A worker that is pushed to: it keeps the ids, and answers each push when `answers` is set."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.answers = asyncio.Event()

    async def take(self, body: bytes, _: object) -> bytes:
        request: Any = PushTaskRequest()
        request.ParseFromString(body)
        self.ids.append(request.task.id)
        await self.answers.wait()
        return b""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Listen, and yield the address."""
        server = grpc.aio.server()
        call: Any = grpc.unary_unary_rpc_method_handler(self.take)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(WORKER_SERVICE, {"PushTask": call}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(None)


def pushing(url: str, folder: Path, name: str, *addresses: str) -> BrokerProcess:
    """Return a broker that pushes to these workers, one task at a time to each."""
    listed = folder / f"{name}.json"
    listed.write_text(json.dumps([{"namespace": "shop", "addresses": list(addresses)}]))
    return BrokerProcess(url, folder, (*OPTIONS, "--delivery", "both", "--worker-map", str(listed)))


@pytest.mark.timeout(400)
async def test_broker_frozen_during_its_pushes_repeats_no_task_at_most_once(server: str, tmp_path: Path) -> None:
    url = await new_database(server)
    held, other = (PushedWorker(), PushedWorker()), PushedWorker()
    other.answers.set()

    def pushed() -> list[str]:
        return [task_id for one in (*held, other) for task_id in one.ids]

    async with AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(one.listening()) for one in (*held, other)]
        first, second = pushing(url, tmp_path, "first", *addresses[:2]), pushing(url, tmp_path, "second", addresses[2])
        stack.callback(first.stop)
        stack.callback(second.stop)
        store = await BrokerStore.open(url)
        stack.push_async_callback(store.close)
        await first.start()
        producer = await stack.enter_async_context(TaskProducer(settings(first)))
        tasks = [replace(new_task(name, once=name == "once"), processing_deadline=60) for name in ("often", "once")]
        await producer.enqueue(tasks)
        await eventually("both tasks are pushed", lambda: len(pushed()) == 2)
        freeze(first, signal.SIGSTOP)
        stack.callback(freeze, first, signal.SIGCONT)
        # The workers accept, and the frozen broker does not write it: its claims expire.
        for one in held:
            one.answers.set()
        await second.start()
        await eventually("the other broker pushes one of them", lambda: other.ids == ["often"])
        async with consumer(second) as asking:
            given = GivenTask(settings(second).address, parse_activation((await found(store, "often")).data))
            await asking.report(given, COMPLETED, fetch=False)

        async def empty() -> bool:
            return not await store.depths()

        await eventually("the store is empty", empty)
        freeze(first, signal.SIGCONT)
        # It goes on: what it knows of its pushes changes nothing, and it pushes new tasks.
        await producer.enqueue([new_task("new", once=True)])
        await eventually("the new task is pushed", lambda: "new" in pushed())
        letters = {stored.letter.id: stored.letter.reason for stored in await list_dead_letters(store)}

    assert Counter(pushed()) == {"often": 2, "once": 1, "new": 1}
    assert letters == {"once": "deadline"}


async def found(store: BrokerStore, task_id: str) -> Inflight:
    activation = await store.get(task_id)
    assert activation is not None
    return activation
