"""No-op activity tasks of Amazon SWF per second and core: the runtime as a library and as in the image, beside boto3.

As in `worker_throughput`: every contender takes a task, does nothing and completes it, with the same number of slots,
against a fresh copy of the same server; contenders take turns.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from tests.bench import worker_peers
from tests.bench.table import Row, ratio
from tests.bench.worker_processes import Cores, Rate, Server, cores, measure, running
from tests.bench.worker_throughput import HERE, WARM_TASKS
from tests.cluster.progress import say

SLOTS = 8
ROUNDS = 3
WINDOW_SECONDS = 3.0
TASKS = 30_000
GOAL = 5.0
DOMAIN, TASK_LIST = "shop", "bench"
LIBRARY, IMAGE, BOTO3 = "library", "image", "boto3 threads"
WAYS = {
    LIBRARY: "ActivityConsumer with an inline handler on uvloop",
    IMAGE: "activity-worker run: a supervisor and a child process a slot, events to log and metrics",
}


class SwfServer(Server):
    """The SWF fake as a process."""

    def schedule_tasks(self, count: int) -> None:
        """Add tasks without a time-out, each in a workflow of its own."""
        self._ask("tasks", {"domain": DOMAIN, "taskList": TASK_LIST, "input": "{}", "count": count})

    def counts(self) -> dict[str, int]:
        """Return the totals since its start; what SWF calls completed has succeeded."""
        found = super().counts()
        return found | {"succeeded": found.get("completed", 0)}


def commands(peer: Path) -> dict[str, Sequence[str | Path]]:
    """Return each contender's command without the endpoint's URL, in the order of their turns."""
    ours = (sys.executable, "-m")
    source = ("--swf-domain", DOMAIN, "--swf-task-list", TASK_LIST, "--slots", str(SLOTS))
    return {
        LIBRARY: (*ours, "tests.bench.worker_ours_swf", "URL", DOMAIN, TASK_LIST, str(SLOTS)),
        IMAGE: (*ours, "activity_worker", "run", "tests.bench.worker_handlers:noop", *source, "--endpoint-url", "URL"),
        BOTO3: (peer, "-P", HERE / "worker_peer_boto3_swf.py", "URL", DOMAIN, TASK_LIST, str(SLOTS)),
    }


def run() -> list[Row]:
    """Let all contenders run in turns, and return the rows."""
    where, peer = cores(), worker_peers.interpreter()
    rates: dict[str, list[Rate]] = {}
    for number in range(1, ROUNDS + 1):
        for name, command in commands(peer).items():
            rate = _turn(name, command, where)
            rates.setdefault(name, []).append(rate)
            say(
                f"  round {number}/{ROUNDS} {name}: {rate.per_second:,.0f} tasks/s, "
                f"{rate.per_cpu_second:,.0f} per CPU-second (server {rate.server_busy:.0%} busy)"
            )
    return rows(rates, where, worker_peers.versions(peer, "boto3"))


def rows(rates: Mapping[str, Sequence[Rate]], where: Cores, named: str) -> list[Row]:
    """PURE: the table's rows from all turns: medians, ours beside boto3's threads."""
    turns = f"median of {ROUNDS} interleaved windows of {WINDOW_SECONDS:g} s, {SLOTS} slots, {where}; peer: {named}"
    made: list[Row] = []
    for way, words in WAYS.items():
        ours, theirs = (median(rate.per_cpu_second for rate in rates[name]) for name in (way, BOTO3))
        clock = [median(rate.per_second for rate in rates[name]) for name in (way, BOTO3)]
        by_clock = f"by the clock {clock[0]:,.0f} and {clock[1]:,.0f} /s, {clock[0] / clock[1]:.2f}x"
        what = f"no-op SWF tasks per CPU-second, {way}"
        how = f"{words}; {by_clock}; {turns}"
        made.append(ratio(what, ours, BOTO3, theirs, unit="/s", goal=GOAL, how=how))
    return made


@contextlib.contextmanager
def _server(core: int) -> Iterator[SwfServer]:
    command = [sys.executable, "-m", "activity_worker.testing.swf", "--port", "0", "--domain", DOMAIN]
    with running(command, core, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield SwfServer(process, process.stdout.readline().split()[-1])


def _turn(name: str, command: Sequence[str | Path], where: Cores) -> Rate:
    with _server(where.server) as fake:
        fake.schedule_tasks(TASKS)
        words = [fake.url if word == "URL" else word for word in command]
        with running(words, where.contender, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            rate = measure(process, fake, warm_tasks=WARM_TASKS, seconds=WINDOW_SECONDS)
            counts = fake.counts()
            fake.kill()
    if counts["started"] >= TASKS:
        raise RuntimeError(f"{name}: all {TASKS} tasks were taken before its window ended; raise TASKS")
    return rate
