"""Tasks of a taskbroker a second with one worker process, and how soon a task starts, beside Dramatiq and Celery.

Ours is the broker as a process on each of its stores, which wait for the disk at every commit, and the worker as a
library with an inline handler. The peers have Redis, which keeps everything in memory. Each worker is on a core apart
from its server's, the contenders take turns, and the rate is counted at the server.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol.channel import ChannelSettings
from tests.bench import worker_peers
from tests.bench.table import Row, at_most, number, ratio
from tests.bench.worker_processes import Cores, Rate, cores, measure, running
from tests.cluster.progress import say
from tests.eventually import eventually_sync
from tests.servers.postgres import new_database, postgres
from tests.servers.redis import redis_server
from tests.servers.taskbroker import BrokerProcess

#: Threads of a peer, and slots of ours: coroutines, of which a process has as many as are useful.
THREADS, SLOTS = 8, 256
ROUNDS = 3
WINDOW_SECONDS = 3.0
WARM_TASKS = 300
GOAL = 2.0
OURS = ("SQLite", "PostgreSQL")
PEERS = ("dramatiq", "celery")
#: More than a contender finishes in its warm-up and its window.
TASKS = {"SQLite": 40_000, "PostgreSQL": 40_000, "dramatiq": 20_000, "celery": 12_000}
#: The keys that hold the unfinished tasks.
LEFT = {"dramatiq": ("HLEN", "dramatiq:default.msgs"), "celery": ("LLEN", "celery")}
#: Tasks that are enqueued in one call.
BATCH = 250
#: Tasks whose start is timed, and the seconds between two of them.
STARTS, PAUSE_SECONDS = 100, 0.1
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Contender:
    """A server with tasks, and how a worker and a producer of it are run; `done` counts the finished tasks."""

    pid: int
    done: Callable[[], int]
    work: Callable[[str], Sequence[str | Path]]
    load: Callable[[int], None]
    send: Callable[[], None]

    def counts(self) -> dict[str, int]:
        """Return the number of finished tasks."""
        return {"succeeded": self.done()}


def run() -> list[Row]:
    """Let all contenders run in turns, and return the rows."""
    where, peer = cores(), worker_peers.interpreter(worker_peers.REDIS)
    rates: dict[str, list[Rate]] = {}
    starts: dict[str, list[float]] = {}
    for turn in range(1, ROUNDS + 1):
        for name in (*OURS, *PEERS):
            with _contender(name, peer, where) as contender:
                rate, delays = _rate(name, contender, where), _starts(contender, where)
            rates.setdefault(name, []).append(rate)
            starts.setdefault(name, []).extend(delays)
            say(
                f"  round {turn}/{ROUNDS} {name}: {rate.per_second:,.0f} tasks/s, server {rate.server_busy:.0%} busy; "
                f"p99 of starts {_p99(delays) * 1000:,.1f} ms"
            )
    return rows(rates, starts, f"{where}; peers: {worker_peers.versions(peer, *PEERS)} on Redis")


def rows(rates: Mapping[str, Sequence[Rate]], starts: Mapping[str, Sequence[float]], where: str) -> list[Row]:
    """PURE: the table's rows from all turns: medians of rates beside the better peer, and delays of starts."""
    speed = {name: median(rate.per_second for rate in turns) for name, turns in rates.items()}
    best = max(PEERS, key=lambda name: speed[name])
    soonest = min(PEERS, key=lambda name: _p99(starts[name]))
    others = ", ".join(f"{name} {number(speed[name], '/s')}" for name in PEERS)
    made: list[Row] = []
    for name in OURS:
        busy = max(rate.server_busy for rate in rates[name])
        how = (
            f"median of {ROUNDS} interleaved windows of {WINDOW_SECONDS:g} s, {SLOTS} slots beside {THREADS} threads; "
            f"the broker was {busy:.0%} busy at most; {others}; {where}"
        )
        what = f"tasks/s of one worker process, {name}"
        made.append(ratio(what, speed[name], best, speed[best], unit="/s", goal=GOAL, how=how))
    for name in OURS:
        how = f"{len(starts[name])} tasks, one each {PAUSE_SECONDS:g} s, at an idle worker; medians: " + ", ".join(
            f"{each} {number(median(starts[each]) * 1000, 'ms')}" for each in (name, *PEERS)
        )
        theirs = ", ".join(f"{each}: {number(_p99(starts[each]) * 1000, 'ms')}" for each in PEERS)
        limit = _p99(starts[soonest]) * 1000
        what = f"p99 from enqueuing a task to its start, {name}"
        made.append(at_most(what, _p99(starts[name]) * 1000, limit, unit="ms", peer=theirs, how=how))
    return made


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[max(round(len(values) * 0.99) - 1, 0)]


def _rate(name: str, contender: Contender, where: Cores) -> Rate:
    contender.load(TASKS[name])
    before = contender.done()
    with running(contender.work(""), where.contender, **_silent()) as process:
        rate = measure(process, contender, warm_tasks=before + WARM_TASKS, seconds=WINDOW_SECONDS)
        if contender.done() >= TASKS[name]:
            raise RuntimeError(f"{name}: all {TASKS[name]} tasks were done before its window ended; raise TASKS")
        # The rest, so that the next tasks start at once.
        eventually_sync("all tasks are done", lambda: contender.done() >= TASKS[name], seconds=300.0)
    return rate


def _starts(contender: Contender, where: Cores) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="starts-") as folder:
        log = Path(folder) / "log"
        with running(contender.work(str(log)), where.contender, **_silent()):
            # Until the worker runs; its first task is not timed.
            contender.load(1)
            eventually_sync("the worker runs", log.exists)
            contender.send()

            def all_began() -> list[float]:
                lines = log.read_text(encoding="utf-8").splitlines()
                return [float(line) for line in lines[1:]] if len(lines) > STARTS else []

            return eventually_sync("all tasks have begun", all_began)


def _silent() -> dict[str, object]:
    return {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@contextmanager
def _contender(name: str, peer: Path, where: Cores) -> Iterator[Contender]:
    if name in PEERS:
        with _peer(name, peer, where) as contender:
            yield contender
        return
    with tempfile.TemporaryDirectory(prefix="broker-") as folder:
        if name == "SQLite":
            with _ours(f"sqlite:///{folder}/broker.db", Path(folder), where) as contender:
                yield contender
            return
        with postgres() as server, _ours(asyncio.run(new_database(server)), Path(folder), where) as contender:
            yield contender


@contextmanager
def _ours(url: str, folder: Path, where: Cores) -> Iterator[Contender]:
    broker = BrokerProcess(url, folder)
    asyncio.run(broker.start())
    assert broker.running is not None
    for thread in Path(f"/proc/{broker.running.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {where.server})
    address = f"127.0.0.1:{broker.port}"

    async def enqueue(count: int) -> None:
        async with TaskProducer(ChannelSettings(address)) as producer:
            for first in range(0, count, BATCH):
                await producer.enqueue([_task() for _ in range(min(BATCH, count - first))])

    async def send() -> None:
        async with TaskProducer(ChannelSettings(address)) as producer:
            for _ in range(STARTS):
                await producer.enqueue([_task()])
                await asyncio.sleep(PAUSE_SECONDS * random.uniform(0.5, 1.5))

    def done() -> int:
        marker = 'activity_broker_reports_total{changed="yes",outcome="complete"} '
        found = [line for line in broker.page("metrics").splitlines() if line.startswith(marker)]
        return int(float(found[0].removeprefix(marker))) if found else 0

    def work(log: str) -> Sequence[str | Path]:
        return (sys.executable, "-m", "tests.bench.broker_ours", address, str(SLOTS), log)

    try:
        yield Contender(
            broker.running.pid, done, work, lambda count: asyncio.run(enqueue(count)), lambda: asyncio.run(send())
        )
    finally:
        broker.stop()


def _task() -> NewTask:
    return NewTask("bench", "note", kwargs={"sent": time.time()}, processing_deadline=60)


@contextmanager
def _peer(name: str, peer: Path, where: Cores) -> Iterator[Contender]:
    with redis_server() as redis:
        os.sched_setaffinity(redis.pid, {where.server})
        sent = 0

        def command(mode: str, count: int, log: str) -> Sequence[str | Path]:
            what = (mode, redis.url, str(count), str(THREADS), log, str(PAUSE_SECONDS))
            return (peer, "-P", HERE / "broker_peer.py", name, *what)

        def send(mode: str, count: int) -> None:
            nonlocal sent
            subprocess.run(command(mode, count, ""), check=True, stdout=subprocess.DEVNULL)
            sent += count

        yield Contender(
            redis.pid,
            lambda: sent - int(redis.say(*LEFT[name])),
            lambda log: command("work", 0, log),
            lambda count: send("load", count),
            lambda: send("send", STARTS),
        )
