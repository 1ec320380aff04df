"""What a taskbroker does a second on both stores, and whether giving out a task stays as fast beside a million others.

The broker is a process of its own; its clients are another one. A client reports a task and gets the next one in the
answer, as a worker does. Both stores wait for the disk at each commit.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from uuid import uuid4

from sqlalchemy import text

from activity_worker.taskbroker.lifecycle.inflight import Outcome
from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol import messages
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerChannel
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.statements import Report, TaskFilter
from tests.bench.table import Row, at_most, number
from tests.cluster.progress import say
from tests.servers.postgres import new_database, postgres
from tests.servers.taskbroker import BrokerProcess

#: Tasks of a round, and how many clients have one at a time.
TASKS, CLIENTS = 5000, 16
BATCH = 100
#: Activations beside the claims that are timed; how many claims are timed; and how much longer one may take.
PENDING = (1000, 100_000, 1_000_000)
CLAIMS = 300
FLAT = 2.0
#: The kinds of claims, with the first letter of the ids that they get: the second one's tasks are due after all others.
_WANTED = {
    "of an application and a namespace": ("f", TaskFilter(namespace="mail", application="shop")),
    "of another application": ("l", TaskFilter(application="late")),
}

_COLUMNS = (
    "id, namespace, application, taskname, data, state, added_at, due_at, deadline_seconds, at_most_once, "
    "keeps_dead_letter, attempts"
)
_ROW = "'{{prefix}}' || n, 'mail', '{{application}}', 'send', {data}, 'pending', 1.0, {{due_at}} + n, 10, {no}, {no}, 0"
_FILL = {
    "postgresql": f"INSERT INTO activitypool_activations ({_COLUMNS}) SELECT "
    + _ROW.format(data="decode(repeat('61', 100), 'hex')", no="FALSE")
    + " FROM generate_series(1, {count}) AS n",
    "sqlite": "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) "
    f"INSERT INTO activitypool_activations ({_COLUMNS}) SELECT "
    + _ROW.format(data="zeroblob(100)", no="0")
    # SQLite would take the condition of an upsert for a join without this.
    + " FROM numbers WHERE true",
}


def run() -> list[Row]:
    """Measure and return the rows."""
    rows = []
    with _stores() as stores:
        for store, url in stores:
            rate = asyncio.run(_rate(url))
            say(f"{store}: {rate:.0f} tasks/s")
            how = f"{TASKS} tasks, {CLIENTS} at a time; each is reported, and the answer brings the next one"
            rows.append(Row(f"tasks/s through a broker, {store}", number(rate, "tasks/s"), how=how))
    with ExitStack() as stack:
        each = [stack.enter_context(_stores()) for _ in PENDING]
        for same in zip(*each, strict=True):
            rows += _growth(same[0][0], asyncio.run(_claims([url for _, url in same])))
    return rows


def _growth(store: str, found: Mapping[str, Sequence[float]]) -> Iterator[Row]:
    """Yield the rows of a store: how much longer a claim takes beside more pending activations."""
    for what, took in found.items():
        beside = ", ".join(f"{one * 1000:.2f} ms beside {count:,}" for one, count in zip(took, PENDING, strict=True))
        say(f"{store}: a claim {what} takes {beside}")
        how = f"median of {CLAIMS} claims in turns, each with its report: {beside} pending"
        name = f"growth of a claim {what}, beside {PENDING[-1]} pending, {store}"
        yield at_most(name, max(took[1:]) / took[0], FLAT, unit="x", how=how)


@contextmanager
def _stores() -> Iterator[Sequence[tuple[str, str]]]:
    with tempfile.TemporaryDirectory(prefix="broker-") as folder, postgres() as server:
        yield [
            ("SQLite", f"sqlite:///{folder}/{uuid4().hex}.db"),
            ("PostgreSQL", asyncio.run(new_database(server))),
        ]


async def _rate(url: str) -> float:
    """Return the tasks a second that clients complete at a broker on this store."""
    with tempfile.TemporaryDirectory(prefix="broker-") as folder:
        broker = BrokerProcess(url, Path(folder))
        await broker.start()
        settings = ChannelSettings(f"127.0.0.1:{broker.port}")
        try:
            async with TaskProducer(settings) as producer:
                for _ in range(TASKS // BATCH):
                    await producer.enqueue([NewTask("mail", "send") for _ in range(BATCH)])
            channel = TaskbrokerChannel(settings)
            began = time.perf_counter()
            done = sum(await asyncio.gather(*(_work(channel) for _ in range(CLIENTS))))
            took = time.perf_counter() - began
            await channel.close()
        finally:
            broker.stop()
    if done != TASKS:
        raise AssertionError(f"{done} of {TASKS} tasks were completed")
    return done / took


async def _work(channel: TaskbrokerChannel) -> int:
    """Complete tasks until none is left; return their number."""
    get, report = (f"/{messages.CONSUMER_SERVICE}/{call}" for call in ("GetTask", "SetTaskStatus"))
    found = await channel.call(get, messages.GetTaskRequest(), messages.GetTaskResponse)
    done = 0
    while found.HasField("task"):
        request = messages.SetTaskStatusRequest(id=found.task.id, status=Outcome.COMPLETE, fetch_next_task={})
        found = await channel.call(report, request, messages.SetTaskStatusResponse)
        done += 1
    return done


async def _claims(urls: Sequence[str]) -> Mapping[str, Sequence[float]]:
    """Return the seconds of each kind of claim beside each number of pending activations, in a store for each.

    The claims take turns, so that other work of the machine slows both in the same way.
    """
    stores = [await BrokerStore.open(url) for url in urls]
    try:
        for store, count in zip(stores, PENDING, strict=True):
            await _fill(store, count)
        took: dict[str, list[list[float]]] = {what: [[] for _ in PENDING] for what in _WANTED}
        for number_of_claim in range(1, CLAIMS + 1):
            for place, store in enumerate(stores):
                for what, (prefix, wanted) in _WANTED.items():
                    took[what][place].append(await _claim(store, wanted, f"{prefix}{number_of_claim}"))
        return {what: [median(times) for times in each] for what, each in took.items()}
    finally:
        for store in stores:
            await store.close()


async def _fill(store: BrokerStore, count: int) -> None:
    async with store.engine.begin() as connection:
        for prefix, application, due_at, rows in (("f", "shop", 0, count), ("l", "late", 10 * count, CLAIMS)):
            values = {"prefix": prefix, "application": application, "due_at": due_at, "count": rows}
            await connection.execute(text(_FILL[store.engine.dialect.name].format(**values)))
    async with store.engine.begin() as connection:
        await connection.execute(text("ANALYZE"))


async def _claim(store: BrokerStore, wanted: TaskFilter, task_id: str) -> float:
    """Claim and complete the first task that is wanted; return the seconds."""
    began = time.perf_counter()
    taken = await store.take(wanted)
    await store.report([Report(task_id, Outcome.COMPLETE)])
    if taken is None:
        raise AssertionError(f"no task for {wanted}")
    return time.perf_counter() - began
