"""No-op tasks per second and core: the runtime as a library and as in the image, beside two peers.

Every contender leases a task, does nothing and sends a success, with the same number of slots, against a fresh copy of
the same server; contenders take turns. The rate is measured from outside, by the tasks that the server has concluded:
per second of time, and per second of CPU time of its processes, which a busy machine disturbs less. The goal is set for
the second.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench import worker_peers
from tests.bench.table import Row, ratio
from tests.bench.worker_processes import ARN, Cores, Rate, cores, measure, running, server
from tests.cluster.progress import say

SLOTS = 8
ROUNDS = 4
WINDOW_SECONDS = 3.0
#: Tasks until a contender has imported, connected, filled its caches and runs at its pace.
WARM_TASKS = 500
#: More than the fastest contender finishes in its warm-up and window, so that no poll waits for a task.
TASKS = 60_000
#: The least ratio to each peer, of the library and of the image.
GOALS = {"library": 3.0, "image": 2.5}

HERE = Path(__file__).parent
LIBRARY, IMAGE, AIOBOTOCORE, BOTO3 = "library", "image", "aiobotocore", "boto3 threads"
WAYS = {
    LIBRARY: "ActivityConsumer with an inline handler on uvloop and a listener on all 15 events",
    IMAGE: "activity-worker run: a supervisor and a child process a slot, events to log and metrics",
}


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to run an activity worker; `command` takes the endpoint's URL."""

    name: str
    command: Callable[[str], Sequence[str | Path]]


def contenders(peer: Path) -> tuple[Contender, ...]:
    """Return all contenders, in the order of their turns; `peer` is the peers' interpreter."""
    slots = str(SLOTS)
    ours: tuple[str, ...] = (sys.executable, "-m")
    image = (*ours, "activity_worker", "run", "tests.bench.worker_handlers:noop", "--activity-arn", ARN)
    return (
        Contender(LIBRARY, lambda url: (*ours, "tests.bench.worker_ours_inline", url, ARN, slots)),
        Contender(AIOBOTOCORE, lambda url: (peer, "-P", HERE / "worker_peer_aiobotocore.py", url, ARN, slots)),
        Contender(IMAGE, lambda url: (*image, "--slots", slots, "--endpoint-url", url)),
        Contender(BOTO3, lambda url: (peer, "-P", HERE / "worker_peer_boto3.py", url, ARN, slots)),
    )


def run() -> list[Row]:
    """Let all contenders run in turns, and return the rows."""
    where, peer = cores(), worker_peers.interpreter()
    named = worker_peers.versions(peer, "aiobotocore", "boto3", "uvloop")
    rates: dict[str, list[Rate]] = {}
    for number in range(1, ROUNDS + 1):
        for contender in contenders(peer):
            rate = _turn(contender, where)
            rates.setdefault(contender.name, []).append(rate)
            say(
                f"  round {number}/{ROUNDS} {contender.name}: {rate.per_second:,.0f} tasks/s, "
                f"{rate.per_cpu_second:,.0f} per CPU-second (server {rate.server_busy:.0%} busy)"
            )
    return rows(rates, where, named)


def rows(rates: Mapping[str, Sequence[Rate]], where: Cores, named: str) -> list[Row]:
    """PURE: the table's rows from all turns: medians, ours beside each peer."""
    busiest = max(rate.server_busy for turns in rates.values() for rate in turns)
    turns = (
        f"median of {ROUNDS} interleaved windows of {WINDOW_SECONDS:g} s, {SLOTS} slots, {where}, "
        f"which kept the server {busiest:.0%} busy at most; peers: {named}"
    )
    made: list[Row] = []
    for way, words in WAYS.items():
        for peer in (AIOBOTOCORE, BOTO3):
            ours, theirs = (median(rate.per_cpu_second for rate in rates[name]) for name in (way, peer))
            clock = [median(rate.per_second for rate in rates[name]) for name in (way, peer)]
            by_clock = f"by the clock {clock[0]:,.0f} and {clock[1]:,.0f} /s, {clock[0] / clock[1]:.2f}x"
            what = f"no-op tasks per CPU-second, {way}"
            # Only the first row has this sentence, which holds for all rows.
            how = f"{words}; {by_clock}" if made else f"{words}; {by_clock}; {turns}"
            made.append(ratio(what, ours, peer, theirs, unit="/s", goal=GOALS[way], how=how))
    return made


def _turn(contender: Contender, where: Cores) -> Rate:
    with server(where.server) as fake:
        fake.schedule(TASKS)
        # Logs are written as in a pod, and discarded.
        with running(
            contender.command(fake.url), where.contender, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            rate = measure(process, fake, warm_tasks=WARM_TASKS, seconds=WINDOW_SECONDS)
            counts = fake.counts()
            fake.kill()
    if counts["started"] >= TASKS:
        raise RuntimeError(f"{contender.name}: all {TASKS} tasks were taken before its window ended; raise TASKS")
    return rate
