"""The operator's replicas as processes that are started, killed and restarted as by a kubelet; and their Service."""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests import measuring
from tests.servers.parent import die_with_parent

RESTART_SECONDS = 0.2
#: The election's settings: how long a Lease lasts, when its holder gives up, and how often it renews.
ELECTION = {"lease_duration_seconds": 4.0, "lease_renew_deadline_seconds": 3.0, "lease_retry_seconds": 0.5}
#: The settings for two replicas: shorter than as shipped, but long enough that a busy machine changes no leader.
HASTENED = {"lease_duration_seconds": 8.0, "lease_renew_deadline_seconds": 6.0, "lease_retry_seconds": 1.0}


class ForkServer:
    """The process that operators are forked from."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    async def fork(self, asked: Mapping[str, Any]) -> int:
        """Start an operator; return its process id. When the caller is cancelled, the started process is killed."""
        forking = asyncio.ensure_future(self._fork(asked))
        try:
            return await asyncio.shield(forking)
        except asyncio.CancelledError:
            # The answer must be read all the same, or the next caller gets this process's id.
            forking.add_done_callback(_unwanted)
            raise

    async def _fork(self, asked: Mapping[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            await self._process.stdin.drain()
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that operators are forked from has ended; its output is above")
        return int(line)


def _unwanted(forking: "asyncio.Future[int]") -> None:
    if not forking.cancelled() and forking.exception() is None:
        with suppress(ProcessLookupError):
            os.kill(forking.result(), signal.SIGKILL)


@asynccontextmanager
async def fork_server(
    folder: Path, program: str = "tests.faults.forked_operators", *arguments: str, **more: str
) -> AsyncIterator[ForkServer]:
    """Start the fork_server; its environment has no settings but `more`.

    It ends with the context, and so do its operators.
    """
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)]),
        "AWS_SECRET_ACCESS_KEY": "none",
        **measuring.environment(),
        **more,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", program, *arguments, env=env, cwd=folder,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, preexec_fn=die_with_parent,
    )  # fmt: skip
    try:
        yield ForkServer(process)
    finally:
        process.kill()
        await process.wait()


class Replica:
    """One replica: a pod's name, and one process after the other until `stop`."""

    def __init__(
        self, fork_server: ForkServer, name: str, settings: Mapping[str, Any], env: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.log = log
        self.port = int(settings["report_port"])
        self.alive = False
        #: How often a test killed it, and how often it ended by itself.
        self.killed = self.ended = 0
        #: When its processes ended, and when one was frozen, in seconds of the monotonic clock.
        self.ends: list[float] = []
        self.freezes: list[float] = []
        self._nursery = fork_server
        self._asked = {"settings": dict(settings), "env": dict(env), "log": str(log)}
        self._pid = 0
        self._task: asyncio.Task[None] | None = None
        self._stays_down = False
        self._down = asyncio.Event()

    def start(self) -> None:
        """Run, and restart whenever the process has ended."""
        self._task = asyncio.create_task(self._keep())

    def kill(self, *, for_good: bool = False) -> None:
        """Kill the process (SIGKILL); it restarts in a moment unless it is `for_good`."""
        self._stays_down = self._stays_down or for_good
        if self.alive:
            self.killed += 1
            self.alive = False
            os.kill(self._pid, signal.SIGKILL)

    def freeze(self) -> None:
        """Stop the process (SIGSTOP), as on a node that hangs: from then on it can record no task."""
        if self.alive:
            self.freezes.append(time.monotonic())
            os.kill(self._pid, signal.SIGSTOP)

    async def stop(self) -> None:
        """End it for good."""
        self.kill(for_good=True)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.alive = False
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    async def _keep(self) -> None:
        while not self._stays_down:
            before = self.killed
            self._pid = await self._nursery.fork(self._asked)
            self.alive = True
            await _end_of(self._pid)
            self.alive = False
            self.ends.append(time.monotonic())
            self.ended += self.killed == before
            self._pid = 0
            await asyncio.sleep(RESTART_SECONDS)


async def _end_of(pid: int) -> None:
    """Wait until a process that is not our child has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


class Service:
    """The report Service: forwards each connection to one of the replicas that have the leader's label."""

    def __init__(self, chosen: Callable[[], list[Replica]]) -> None:
        self._chosen = chosen
        self._carrying: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for task in tuple(self._carrying):
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replicas = self._chosen()
        try:
            if not replicas:
                raise ConnectionRefusedError
            there, back = await asyncio.open_connection("127.0.0.1", random.choice(replicas).port)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(_carry(source, sink))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
    finally:
        sink.transport.abort()
