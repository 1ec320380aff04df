"""Jobs of a Redis queue per second and core, leased and completed in one process, beside three peers.

Ours uses the whole published dialect (move, lock, read, check, save, unlock) and takes no job before a slot is free;
the peers have their own protocols and prefetch by their defaults. Every contender runs the same no-op job in as many
slots, on a core apart from the server's; contenders take turns. The rate is measured from outside, by the jobs that are
left.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import open_client
from tests.bench import worker_peers
from tests.bench.redis_ours import QUEUE
from tests.bench.table import Row, ratio
from tests.bench.worker_processes import Cores, Rate, cores, measure, running
from tests.cluster.progress import say
from tests.servers.redis import RedisServer, redis_server

SLOTS = 8
ROUNDS = 3
WINDOW_SECONDS = 3.0
#: Jobs until a contender has imported, connected, filled its caches and runs at its pace.
WARM_JOBS = 300
GOAL = 2.0

HERE = Path(__file__).parent
DIALECT, ATOMIC = "dialect", "atomic"
WAYS = {
    DIALECT: "ActivityConsumer with an inline handler on uvloop, conclude: dialect",
    ATOMIC: "the same, conclude: atomic, a script for each lease and conclusion",
}
#: The number of jobs: more than a contender finishes in its warm-up and its window.
JOBS = {DIALECT: 80_000, ATOMIC: 80_000, "dramatiq": 20_000, "arq": 20_000, "celery": 12_000}
#: The keys that hold the unfinished jobs.
LEFT = {
    DIALECT: ("LLEN", keys.waiting(QUEUE)),
    ATOMIC: ("LLEN", keys.waiting(QUEUE)),
    "dramatiq": ("HLEN", "dramatiq:default.msgs"),
    "arq": ("ZCARD", "arq:queue"),
    "celery": ("LLEN", "celery"),
}
PEERS = ("dramatiq", "arq", "celery")


@dataclass(frozen=True, slots=True)
class Done:
    """A contender's finished jobs, as the server knows them; `pid` is the server's."""

    redis: RedisServer
    name: str
    pid: int

    def counts(self) -> dict[str, int]:
        """Return the number of finished jobs."""
        return {"succeeded": JOBS[self.name] - int(self.redis.say(*LEFT[self.name]))}


def run() -> list[Row]:
    """Let all contenders run in turns, and return the rows."""
    where, peer = cores(), worker_peers.interpreter(worker_peers.REDIS)
    named = worker_peers.versions(peer, *PEERS)
    rates: dict[str, list[Rate]] = {}
    for number in range(1, ROUNDS + 1):
        for name in JOBS:
            rate = _turn(name, peer, where)
            rates.setdefault(name, []).append(rate)
            say(
                f"  round {number}/{ROUNDS} {name}: {rate.per_second:,.0f} jobs/s, "
                f"{rate.per_cpu_second:,.0f} per CPU-second (server {rate.server_busy:.0%} busy)"
            )
    return rows(rates, where, named)


def rows(rates: Mapping[str, Sequence[Rate]], where: Cores, named: str) -> list[Row]:
    """PURE: the table's rows from all turns: medians, ours beside each peer."""
    busiest = max(rate.server_busy for turns in rates.values() for rate in turns)
    made: list[Row] = []
    for way, words in WAYS.items():
        for peer in PEERS:
            ours, theirs = (median(rate.per_second for rate in rates[name]) for name in (way, peer))
            cpu = [median(rate.per_cpu_second for rate in rates[name]) for name in (way, peer)]
            how = f"{words}; per CPU-second {cpu[0]:,.0f} and {cpu[1]:,.0f}, {cpu[0] / cpu[1]:.2f}x"
            if not made:
                how += (
                    f"; median of {ROUNDS} interleaved windows of {WINDOW_SECONDS:g} s, {SLOTS} slots, {where}, "
                    f"which kept the server {busiest:.0%} busy at most; peers: {named}"
                )
            goal = GOAL if peer == "dramatiq" else None
            what = f"jobs per second of one process, {way}"
            made.append(ratio(what, ours, peer, theirs, unit="/s", goal=goal, how=how))
    return made


def _turn(name: str, peer: Path, where: Cores) -> Rate:
    with redis_server() as redis:
        pid = redis.pid
        os.sched_setaffinity(pid, {where.server})
        command = _commands(peer)[name]
        if name in WAYS:
            asyncio.run(_load(redis.url, JOBS[name]))
        else:
            subprocess.run(command("load", redis.url), check=True, stdout=subprocess.DEVNULL)
        with running(
            command("work", redis.url), where.contender, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            rate = measure(process, Done(redis, name, pid), warm_tasks=WARM_JOBS, seconds=WINDOW_SECONDS)
            if int(redis.say(*LEFT[name])) == 0:
                raise RuntimeError(f"{name}: all {JOBS[name]} jobs were done before its window ended; raise JOBS")
    return rate


def _commands(peer: Path) -> dict[str, Callable[[str, str], Sequence[str | Path]]]:
    def ours(way: str) -> Callable[[str, str], Sequence[str | Path]]:
        return lambda _, url: (sys.executable, "-m", "tests.bench.redis_ours", url, str(SLOTS), way)

    def theirs(name: str) -> Callable[[str, str], Sequence[str | Path]]:
        return lambda mode, url: (peer, "-P", HERE / "redis_peer.py", name, mode, url, str(JOBS[name]), str(SLOTS))

    return {way: ours(way) for way in WAYS} | {name: theirs(name) for name in PEERS}


async def _load(url: str, count: int) -> None:
    client = open_client(url)
    try:
        for first in range(0, count, 1000):
            names = [str(number) for number in range(first, first + 1000)]
            await client.pipeline([("HSET", keys.job(QUEUE, name), "number", name) for name in names])
            await client.pipeline([("RPUSH", keys.waiting(QUEUE), *names)])
    finally:
        await client.close()
