"""1,000 task heartbeats every 10 s beside handlers that hold the interpreter; the peer runs all in one process.

All tasks are leased at once, so their heartbeats are due together. Lateness is measured by the service.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import worker_peers
from tests.bench.table import Row
from tests.bench.worker_lateness import Lateness, of_tasks
from tests.bench.worker_processes import ARN, Cores, Server, cores, running
from tests.cluster.progress import say
from tests.eventually import eventually_sync

TASKS = 1000
HANDLERS = 4
INTERVAL_SECONDS = 10.0
HEARTBEAT_SECONDS = 30
#: Seconds for three heartbeats of a task; a task without any heartbeat then exceeds its HeartbeatSeconds.
WINDOW_SECONDS = 34.0
LATE_SECONDS = 1.0

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the service measured: how late heartbeats were, and how many tasks timed out for lack of one."""

    lateness: Lateness
    timed_out: int


def run() -> list[Row]:
    """Run ours, then the peer, and return the rows."""
    where, peer = cores(), worker_peers.interpreter()
    sizes = (str(TASKS), str(HANDLERS))
    ours = _watch("ours", (sys.executable, "-m", "tests.bench.worker_ours_heartbeats"), sizes, where)
    script = (peer, "-P", HERE / "worker_peer_heartbeats.py")
    theirs = _watch("boto3 threads", script, (*sizes, f"{INTERVAL_SECONDS:g}"), where)
    return rows(ours, theirs, where, worker_peers.versions(peer, "boto3"))


def rows(ours: Outcome, theirs: Outcome, where: Cores, peer: str) -> list[Row]:
    """PURE: the table's rows."""
    how = (
        f"{TASKS:,} tasks leased at once by one supervisor with {TASKS:,} slots, {HANDLERS} handler processes that "
        f"hold the interpreter, the other tasks waiting for one; heartbeats every {INTERVAL_SECONDS:g} s for "
        f"{WINDOW_SECONDS:g} s, as the fake saw them; {where}; peer: one process, a heartbeat thread a task, "
        f"{HANDLERS} such handlers in threads ({peer})"
    )
    late, peers = (outcome.lateness.later_than(LATE_SECONDS) for outcome in (ours, theirs))
    made = [
        Row(
            f"task heartbeats more than {LATE_SECONDS:g} s late",
            f"{late} of {ours.lateness.count:,}",
            f"boto3 threads: {peers:,} of {theirs.lateness.count:,}",
            "limit <= 0",
            late == 0,
            how,
        ),
        Row(
            f"tasks timed out for want of a heartbeat (HeartbeatSeconds {HEARTBEAT_SECONDS})",
            f"{ours.timed_out} of {TASKS:,}",
            f"boto3 threads: {theirs.timed_out:,} of {TASKS:,}",
            "limit <= 0",
            ours.timed_out == 0,
            "the same run",
        ),
    ]
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        mine, other = (outcome.lateness.quantile(share) for outcome in (ours, theirs))
        made.append(Row(f"lateness of task heartbeats, {name}", f"{mine:.3f} s", f"boto3 threads: {other:.3f} s"))
    return made


def _watch(name: str, program: Sequence[str | Path], sizes: Sequence[str], where: Cores) -> Outcome:
    """Let a program lease all tasks and heartbeat for the window; return what the service measured."""
    command = (sys.executable, "-m", "tests.bench.worker_heartbeat_server")
    with running(command, where.server, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        fake = Server(process, process.stdout.readline().split()[-1])
        fake.schedule(TASKS, heartbeatSeconds=HEARTBEAT_SECONDS)
        with running(
            (*program, fake.url, ARN, *sizes), where.contender, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ):
            eventually_sync(f"{TASKS} tasks leased", lambda: fake.counts().get("started", 0) == TASKS, seconds=90.0)
            say(f"  {name}: {TASKS:,} tasks leased, watching their heartbeats for {WINDOW_SECONDS:g} s")
            time.sleep(WINDOW_SECONDS)
            process.send_signal(signal.SIGTERM)
            seen = json.loads(process.stdout.readline())
    outcome = Outcome(of_tasks(seen["histories"], INTERVAL_SECONDS, seen["ended_at"]), seen["timed_out"])
    lateness = outcome.lateness
    say(f"  {name}: {lateness.later_than(LATE_SECONDS)} of {lateness.count} late, {outcome.timed_out} tasks timed out")
    return outcome
