"""The supervisor's side of one child process: start it, exchange messages, notice its end, kill it with its children.

A fresh interpreter is executed for each child. Measured on a 2-core machine with Python 3.11, small handler, compiled
bytecode: ready after 65 ms, 23 MB resident of which 14 MB are its own. A fork server with everything preloaded takes 10
ms and 10 MB (its own first start 85 ms). It would share what handlers import, and many of those (clients, thread pools)
do not survive a fork; a child is started once and replaced rarely, so safety is worth 55 ms. A fork of the supervisor
itself would copy its event loop, threads and TLS connections half alive.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

from activity_worker.errors import ActivityError
from activity_worker.subprocess.oom import OomKillCounter
from activity_worker.subprocess.parent_channel import ParentChannel
from activity_worker.subprocess.protocol import CHILD_UNUSABLE, Message
from activity_worker.subprocess.start_flag import StartFlag, open_memory

#: How long importing the handler's module may take before the child counts as unusable.
START_TIMEOUT_SECONDS = 120.0
#: How long a dead child's last messages are read while a grandchild still holds the other end of the socket.
_LAST_MESSAGES_SECONDS = 0.5
#: How long an idle child may take to close its resources, and for its exit handlers.
_STOP_SECONDS = 5.0
_BOOTSTRAP = Path(__file__).with_name("bootstrap.py")


class HandlerUnusableError(ActivityError):
    """The handler cannot be imported or started in a process of its own; the message names it and the reason."""

    task_error = "ActivityPool.HandlerUnusable"
    always_fails = True


class LoadingKilledError(HandlerUnusableError):
    """A signal ended the process while it imported the handler: another process may come further."""


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a child ended: an exit code, or minus the number of the signal that killed it.

    `out_of_memory` tells whether the kernel took it for want of memory; None when that is not known. `by_runtime` tells
    whether the supervisor killed it: at the deadline of its task, or because it ignored a cancellation.
    """

    returncode: int
    out_of_memory: bool | None = None
    by_runtime: bool = False

    def __str__(self) -> str:
        """Return the end as a clause for messages."""
        if self.returncode >= 0:
            return f"the handler's process exited with code {self.returncode}"
        try:
            name = signal.Signals(-self.returncode).name
        except ValueError:
            name = f"signal {-self.returncode}"
        if self.by_runtime:
            return "the worker killed the handler's process, which was over its deadline or ignored its cancellation"
        return f"the handler's process was killed by {name}{self._kill_reason if name == 'SIGKILL' else ''}"

    @property
    def _kill_reason(self) -> str:
        match self.out_of_memory:
            case None:
                return " (out of memory, or killed from outside)"
            case True:
                return ": the container is out of memory; raise its limit, or have the handler use less"
            case False:
                return " from outside"


class ChildProcess:
    """A running child. Make one with `spawn`; end it with `close`."""

    def __init__(self, process: asyncio.subprocess.Process, oom_kills: OomKillCounter, start_flag: StartFlag) -> None:
        self._process = process
        self._start_flag = start_flag
        # A child that sends a malformed message or closes its end can do no more work. Mostly it is dead already.
        self._channel = ParentChannel(self._kill_all)
        #: Tasks that the child has run, and whether it ends because they are enough.
        self.tasks = 0
        self.retired = False
        #: The `ready` message of the child.
        self.ready_message: Message = {}
        self._killed = False
        self._exit = asyncio.create_task(self._end(oom_kills))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the child seems able to run a task: its process runs and its socket is open."""
        return self._process.returncode is None and not self._channel.ended

    def handler_has_started(self, number: int) -> bool:
        """Return whether the handler of the task `number`, the last one that was sent, has begun."""
        return self._start_flag.is_set(number)

    @classmethod
    async def spawn(
        cls,
        handler: str,
        oom_kills: OomKillCounter,
        start_timeout_seconds: float = START_TIMEOUT_SECONDS,
        environment: Mapping[str, str] = MappingProxyType({}),
        python: str = "",
    ) -> Self:
        """Start a process that has imported `handler` (`module:function`); raises `HandlerUnusableError`.

        `environment` is added to that of this process. `python` is the interpreter of the handler's environment, by
        default this process's own.
        """
        program, ours = python or sys.executable, None
        try:
            ours, theirs = socket.socketpair()
            with theirs, _shared_flag() as (flag, flag_fd):
                fds = (theirs.fileno(), flag_fd)
                child_environment = {**_environment(), **environment}
                command = [program, "-P", "-u", str(_BOOTSTRAP), *map(str, fds), handler, str(os.getpid())]
                # A session of its own: Ctrl-C in a terminal reaches the supervisor only, and `kill` reaches what the
                # handler has started as well.
                process = await asyncio.create_subprocess_exec(
                    *command,
                    child_environment.pop("PYTHONPATH", ""),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=fds,
                    start_new_session=True,
                    env=child_environment,
                )
        except OSError as error:
            if ours is not None:
                ours.close()
            raise HandlerUnusableError(f"{handler}: {program} could not be started: {error.strerror}") from error
        child = cls(process, oom_kills, flag)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: child._channel, sock=ours)
            await child._await_ready(handler, start_timeout_seconds)
        except BaseException:
            await child.close()
            raise
        return child

    async def _await_ready(self, handler: str, timeout_seconds: float) -> None:
        try:
            async with asyncio.timeout(timeout_seconds):
                first = await self.receive()
        except TimeoutError:
            raise HandlerUnusableError(
                f"{handler}: importing its module took longer than {timeout_seconds:g} s; do slow work in the handler"
            ) from None
        if first is None:
            exit_ = await self.ended()
            kind = LoadingKilledError if exit_.returncode < 0 else HandlerUnusableError
            raise kind(f"{handler}: {exit_} while importing its module")
        if first.get("kind") != "ready":
            raise HandlerUnusableError(f"{first.get('message', handler)} (exit code {CHILD_UNUSABLE})")
        self.ready_message = first

    async def send(self, message: Message) -> None:
        """Send one message. To a dead child this does nothing: `receive` then returns None. Raises `FrameError`."""
        await self._channel.send(message)

    async def receive(self) -> Message | None:
        """Return the next message; None, from then on, when the child is dead or has sent a malformed message."""
        return await self._channel.receive()

    async def ended(self) -> ProcessExit:
        """Wait for the end of the process and return how it ended."""
        return await asyncio.shield(self._exit)

    def kill(self) -> None:
        """Kill the child and what it has started (SIGKILL, so that a handler cannot refuse)."""
        self._killed = True
        self._kill_all()

    async def stop(self) -> None:
        """Let an idle child run its exit handlers and end; kill it if that takes too long."""
        await self.send({"kind": "stop"})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        await self.close()

    async def close_when_read(self) -> None:
        """Close a dead child after its last messages have arrived; `receive` still returns them."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._channel.wait_ended()
        await self.close()

    async def close(self) -> None:
        """Kill the child if it still runs, and free everything that belongs to it."""
        self.kill()
        await self._process.wait()
        # Once more: the child may have started something between the first signal and its own death.
        self.kill()
        await self._exit
        await self._channel.close()

    async def _end(self, oom_kills: OomKillCounter) -> ProcessExit:
        """Wait for the end and read the count of OOM kills, which the kernel raises before the process ends."""
        code = await self._process.wait()
        killed = code == -signal.SIGKILL
        exit_ = ProcessExit(
            code,
            out_of_memory=oom_kills.claim() if killed and not self._killed else None,
            by_runtime=killed and self._killed,
        )
        # Its last words may still be on their way, or a grandchild may hold the other end of the socket open.
        asyncio.get_running_loop().call_later(_LAST_MESSAGES_SECONDS, self._channel.end)
        return exit_

    def _kill_all(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def _shared_flag() -> Iterator[tuple[StartFlag, int]]:
    """Yield the flag of a new child, and the descriptor that the child gets; it is closed here afterwards."""
    fd = open_memory()
    try:
        yield StartFlag(fd), fd
    finally:
        os.close(fd)


def _environment() -> dict[str, str]:
    # The prints of a handler and of what it starts belong in the log when they happen, not when a buffer is full.
    return {"PYTHONUNBUFFERED": "1", **os.environ}
