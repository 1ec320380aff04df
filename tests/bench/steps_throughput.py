"""Steps of durable tasks per second, on SQLite and PostgreSQL, with one runner process and eight, beside DBOS.

The work is the same for all: tasks of five steps that do nothing, stored before the runners start. The rate is measured
from outside, by the complete tasks in the database, after the first tenth. Runners start together when all have
finished their imports, which takes eight processes on two cores several seconds. PostgreSQL and SQLite wait for the
disk at each commit, as in production.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from activity_worker.steps import TaskStore
from tests.bench import worker_peers
from tests.bench.steps_ours import STEPS, TASKS
from tests.bench.table import Row, at_most, number
from tests.cluster.progress import say
from tests.eventually import eventually, eventually_sync
from tests.servers.postgres import new_database, postgres

HERE = Path(__file__).parent
#: Tasks of a round.
TASKS_EACH = 1000
SLOTS = 4
RUNNERS = (1, 8)
STARTS = 100
START_GOAL_SECONDS = 0.050
#: Seconds after which a contender counts as unable to finish its work.
PATIENCE_SECONDS = 180.0

OURS_DONE = "SELECT count(*) FROM activitypool_instances WHERE complete"
PEER_DONE = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"


def run() -> list[Row]:
    """Measure and return the rows."""
    peer = worker_peers.interpreter(worker_peers.STEPS)
    named = worker_peers.versions(peer, "dbos")
    ours: tuple[str | Path, ...] = (sys.executable, "-m", "tests.bench.steps_ours")
    theirs: tuple[str | Path, ...] = (peer, "-P", HERE / "steps_peer.py")
    rows = []
    with tempfile.TemporaryDirectory(prefix="steps-") as folder, postgres() as server:
        for runners in RUNNERS:
            url = f"sqlite:///{folder}/{uuid4().hex}.db"
            rate = _rate(ours, url, runners, partial(_sqlite_done, url))
            rows.append(Row(f"steps/s, SQLite, {runners} runner(s)", number(rate, "steps/s"), how=_how(runners)))
            say(f"SQLite, {runners}: {rate:.0f} steps/s")
        for runners in RUNNERS:
            rates = []
            for command, count in ((ours, OURS_DONE), (theirs, PEER_DONE)):
                url = asyncio.run(new_database(server))
                with _counter(url, count) as done:
                    rates.append(_rate(command, url, runners, done))
            rows.append(
                Row(
                    f"steps/s, PostgreSQL, {runners} runner(s)",
                    number(rates[0], "steps/s"),
                    f"{named}: {number(rates[1], 'steps/s')}",
                    f"{rates[0] / rates[1]:.2f}x",
                    how=_how(runners),
                )
            )
            say(f"PostgreSQL, {runners}: {rates[0]:.0f} steps/s, {named} {rates[1]:.0f}")
        late = sorted(asyncio.run(_starts(asyncio.run(new_database(server)))))
    rows.append(
        at_most(
            "start latency p99 on PostgreSQL",
            late[round(len(late) * 0.99) - 1] * 1000,
            START_GOAL_SECONDS * 1000,
            unit="ms",
            how=f"{len(late)} starts, one at a time, from before the insert to the first line of the first step; "
            f"median {late[len(late) // 2] * 1000:.1f} ms",
        )
    )
    return rows


def _how(runners: int) -> str:
    return f"{TASKS_EACH} tasks of {STEPS} steps, {runners} process(es) of {SLOTS} slots, each commit on the disk"


def _rate(command: Sequence[str | Path], url: str, runners: int, done: Callable[[], int]) -> float:
    """Return steps per second from the first tenth of the tasks to the last one."""
    arguments = (url, str(TASKS_EACH), str(SLOTS))
    subprocess.run([*command, "load", *arguments], check=True, cwd=HERE.parents[1], stdout=subprocess.DEVNULL)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    working = [
        subprocess.Popen([*command, "work", *arguments], cwd=HERE.parents[1], **pipes)  # type: ignore[call-overload]
        for _ in range(runners)
    ]
    try:
        for process in working:
            assert process.stdout.readline() == "ready\n", "a runner ended before it began"
        for process in working:
            process.stdin.write("go\n")
            process.stdin.flush()
        first, before = _until(done, TASKS_EACH // 10)
        last, after = _until(done, TASKS_EACH)
        return (after - before) * STEPS / (last - first)
    finally:
        for process in working:
            process.kill()
            process.wait()


def _until(done: Callable[[], int], count: int) -> tuple[float, int]:
    def enough() -> int | None:
        return now if (now := done()) >= count else None

    now = eventually_sync(
        f"{count} tasks are complete", enough, seconds=PATIENCE_SECONDS, every_seconds=0.02, details=done
    )
    return time.monotonic(), now


def _sqlite_done(url: str) -> int:
    engine = create_engine(url, connect_args={"timeout": 30})
    try:
        with engine.connect() as connection:
            return int(connection.execute(text(OURS_DONE)).scalar_one())
    finally:
        engine.dispose()


@contextmanager
def _counter(url: str, statement: str) -> Iterator[Callable[[], int]]:
    """Yield a function that counts; a missing table counts as empty."""
    with asyncio.Runner() as runner:
        engine = create_async_engine(url.replace("postgresql", "postgresql+asyncpg"), isolation_level="AUTOCOMMIT")

        async def count() -> int:
            try:
                async with engine.connect() as connection:
                    return int((await connection.execute(text(statement))).scalar_one())
            except DBAPIError:
                return 0

        try:
            yield lambda: runner.run(count())
        finally:
            runner.run(engine.dispose())


async def _began(store: TaskStore, name: str) -> float | None:
    """Return when a complete instance began, in Unix seconds; None while it is not complete."""
    instance = (await store.get(name)).instance
    return float(instance.data["began"]) if instance.complete else None


async def _starts(url: str) -> list[float]:
    """Return how long each of some instances waited; they are created one by one for a runner in another process."""
    store = await TaskStore.open(url)
    await TASKS.sync(store)
    command = (sys.executable, "-m", "tests.bench.steps_ours", "work", url, "0", "1")
    pipe = asyncio.subprocess.PIPE
    runner = await asyncio.create_subprocess_exec(*command, cwd=HERE.parents[1], stdin=pipe)
    assert runner.stdin is not None
    runner.stdin.write(b"go\n")
    late = []
    try:
        for number_ in range(STARTS + 5):
            before = time.time()
            name = await TASKS.new(store, "prompt")
            began = await eventually("the instance is complete", partial(_began, store, name), every_seconds=0.01)
            if number_ >= 5:  # the first ones wait for the runner's imports
                late.append(began - before)
    finally:
        runner.kill()
        await runner.wait()
        await store.close()
    return late
