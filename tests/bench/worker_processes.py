"""Processes under measurement: the fake service, a contender beside it, and the CPU time each has used.

With two cores or more, the server runs on one and the contender, with all its processes, on another: neither takes time
from the other, and a rate is always for one core.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from tests.eventually import eventually_sync

REPOSITORY = Path(__file__).parents[2]
ARN = "arn:aws:states:us-east-1:123456789012:activity:bench"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
#: Static keys, so that no contender looks for others; NO_PROXY, because all calls go to 127.0.0.1.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores of the server and of the contender; both are the same on a machine with one core."""

    server: int
    contender: int

    def __str__(self) -> str:
        return "server and contender on a core each" if self.server != self.contender else "all on one core"


def cores() -> Cores:
    """Return the first and the last core that this process may use.

    Raises RuntimeError where the system has no such call.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise RuntimeError("this benchmark pins processes to cores and reads /proc: it runs on Linux only")
    usable = sorted(os.sched_getaffinity(0))
    return Cores(usable[0], usable[-1])


@contextlib.contextmanager
def running(command: Sequence[str | Path], core: int, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a command and its children on one core, and kill them at the end."""
    environment = {**os.environ, **ENVIRONMENT, **cast("Mapping[str, str]", options.pop("environment", {}))}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, text=True, **options) as process:
        try:
            # The process has one thread at this point; threads and processes that it starts later inherit the core.
            os.sched_setaffinity(process.pid, {core})
            yield process
        finally:
            process.kill()


class Counts(Protocol):
    """A server that counts concluded tasks."""

    @property
    def pid(self) -> int:
        """The process id of the server."""
        ...

    def counts(self) -> dict[str, int]:
        """Return the totals since the server's start; `succeeded` is one of them."""
        ...


class Server:
    """The fake service as a process."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self.pid = process.pid
        self.url = url

    def schedule(self, count: int, *, activity_arn: str = ARN, **task: Any) -> None:
        """Add tasks; `task` has fields of the fake's HTTP API, such as `heartbeatSeconds`."""
        self._ask("tasks", {"activityArn": activity_arn, "count": count, **task})

    def counts(self) -> dict[str, int]:
        """Return the totals since its start."""
        return cast("dict[str, int]", self._ask("state?tasks=0")["counts"])

    def open_polls(self, activity_arn: str = ARN) -> int:
        """Return how many polls wait for a task."""
        activity = self._ask("state?tasks=0")["activities"].get(activity_arn, {"open_polls": 0})
        return cast("int", activity["open_polls"])

    def kill(self) -> None:
        """Kill it before its clients, so that it logs no errors about their end."""
        self._process.kill()

    def _ask(self, page: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(f"{self.url}/_fake/{page}", data=data), timeout=60) as reply:
            return cast("dict[str, Any]", json.load(reply))


@contextlib.contextmanager
def server(core: int, *arguments: str) -> Iterator[Server]:
    """Run the fake service on one core."""
    command = [sys.executable, "-m", "activity_worker.testing.stepfunctions", "--port", "0", *arguments]
    with running(command, core, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield Server(process, process.stdout.readline().split()[-1])


def cpu_seconds(pid: int) -> float:
    """Return the CPU time (user and system) of a process and of its children that have ended."""
    used = 0.0
    with contextlib.suppress(OSError):
        # The name in parentheses may contain spaces; utime, stime, cutime and cstime are fields 14 to 17 of proc(5).
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        used = sum(map(int, fields[11:15])) / _TICKS_PER_SECOND
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text(encoding="utf-8").split():
                used += cpu_seconds(int(child))
    return used


@dataclass(frozen=True, slots=True)
class Rate:
    """A contender's speed in a window: tasks per second, and per second of its processes' CPU time.

    `server_busy` is the share of the window in which the server used its core: near 1, the server was the bottleneck.
    """

    per_second: float
    per_cpu_second: float
    server_busy: float


def measure(contender: subprocess.Popen[str], fake: Counts, *, warm_tasks: int, seconds: float) -> Rate:
    """Measure a contender after it has concluded `warm_tasks`.

    Raises ClusterError when it does not reach that number.
    """

    def warm() -> bool:
        if contender.poll() is not None:
            raise RuntimeError(f"{contender.args!r} ended with exit code {contender.returncode}")
        return fake.counts().get("succeeded", 0) >= warm_tasks

    eventually_sync(f"{warm_tasks} tasks concluded", warm, seconds=60.0)
    before = _reading(contender, fake)
    time.sleep(seconds)
    after = _reading(contender, fake)
    wall, tasks, cpu, server_cpu = (end - start for start, end in zip(before, after, strict=True))
    return Rate(tasks / wall, tasks / cpu, server_cpu / wall)


def _reading(contender: subprocess.Popen[str], fake: Counts) -> tuple[float, float, float, float]:
    concluded = fake.counts()["succeeded"]
    return time.monotonic(), float(concluded), cpu_seconds(contender.pid), cpu_seconds(fake.pid)
