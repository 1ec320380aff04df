"""Runs handlers in child processes: a handler that blocks, leaks or crashes harms its own task only.

The supervisor forwards heartbeats, answers and cancellation, so a handler has the same toolkit as in one process. A
child that ends by itself fails its task as `ActivityPool.HandlerExited`. A child whose task exceeds the hard deadline
is killed, and so is a child whose handler does not end within `cancel_grace_seconds` after its cancellation. A dead
child is replaced at once, and so is one that has run `max_tasks` tasks: it closes its resources and ends by itself.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from activity_worker.runtime.cancellation import CancellationSignal, CancelReason
from activity_worker.runtime.toolkit import TaskResponseToolkit
from activity_worker.subprocess.errors import HandlerRaisedError
from activity_worker.subprocess.oom import OomKillCounter
from activity_worker.subprocess.process import ChildProcess, HandlerUnusableError, LoadingKilledError, ProcessExit
from activity_worker.subprocess.protocol import Message
from activity_worker.subprocess.session import HandlerExitedError, TaskNotStartedError, TaskSession
from activity_worker.task import TaskRequest
from activity_worker.wire.backoff import pause_after

__all__ = ["HandlerExitedError", "HandlerUnusableError", "ProcessExit", "SubprocessRunner"]

#: The grace of a cancelled handler: long enough to close a file, and shorter than any heartbeat time-out.
CANCEL_GRACE_SECONDS = 5.0
#: A child that dies sooner than this after it was ready had a short life. It is replaced at once. From the second short
#: life in a row on, replacements wait, with pauses that double up to the maximum.
_SHORT_LIFE_SECONDS = 1.0
#: How often a child is started whose imports a signal ends, until the handler is called unusable.
_IMPORT_TRIES = 3
_PAUSE_SECONDS = 0.25
_MAX_PAUSE_SECONDS = 30.0

log = logging.getLogger(__name__)


class SubprocessRunner:
    """Runs one slot's handler, `module:function`, in a child process (a `HandlerRunner`).

    A task that takes longer than `deadline_seconds` (None: no limit) costs its child. `on_unusable` is called when a
    dead child cannot be replaced, because its module cannot be imported any more: the slot can then run no task.
    `max_tasks` is how many tasks a child runs at most (None: any number). `on_death` is called with the end of each
    child that dies. Slots of one container share `oom_kills`.

    Children get `environment` in addition to this process's. `on_capabilities` gets the capabilities of each child
    (None for a handler that is no `Tasks` object) and may raise `HandlerUnusableError`. `on_measured` gets the
    measurements of a child's calls, `on_activities` name and version of the activities in each child's registry.
    `python` is the interpreter of the handler's environment, by default this process's own.
    """

    def __init__(
        self,
        handler: str,
        *,
        deadline_seconds: float | None = None,
        cancel_grace_seconds: float = CANCEL_GRACE_SECONDS,
        max_tasks: int | None = None,
        on_unusable: Callable[[HandlerUnusableError], None] = lambda _: None,
        on_death: Callable[[ProcessExit], None] = lambda _: None,
        oom_kills: OomKillCounter | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
        on_capabilities: Callable[[Message | None], object] = lambda _: None,
        on_measured: Callable[[Message], object] = lambda _: None,
        on_activities: Callable[[Sequence[tuple[str, str]]], object] = lambda _: None,
        python: str = "",
    ) -> None:
        self._handler = handler
        self._on_activities = on_activities
        self._python = python
        self._environment = environment
        self._on_capabilities = on_capabilities
        self._on_measured = on_measured
        self._deadline_seconds = deadline_seconds
        self._grace_seconds = cancel_grace_seconds
        self._max_tasks = max_tasks
        self._on_unusable = on_unusable
        self._on_death = on_death
        self._oom_kills = oom_kills or OomKillCounter()
        self._numbers = itertools.count(1)
        self._child: asyncio.Task[ChildProcess] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._replaced = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is none."""
        return self._ready.pid if self._ready is not None else None

    @property
    def _ready(self) -> ChildProcess | None:
        child = self._child
        ready = child is not None and child.done() and not child.cancelled() and child.exception() is None
        return child.result() if child is not None and ready else None

    @property
    def ready(self) -> bool:
        """Whether the child is there, so that a task could begin at once."""
        return self._ready is not None and self._ready.alive

    async def wait_ready(self) -> None:
        """Wait until the child is there, or cannot be started."""
        with contextlib.suppress(HandlerUnusableError):
            await self._usable_child()

    def kill(self) -> None:
        """Kill the child and what it has started."""
        if self._ready is not None:
            self._ready.kill()

    async def start(self) -> None:
        """Start the child and import the handler there; raises `HandlerUnusableError`."""
        self._child = asyncio.create_task(self._spawn())
        await self._child
        self._watching = asyncio.create_task(self._watch())

    async def run(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        """Run the handler on one task; raises what it raised, `HandlerExitedError`, or a `TaskCancelledError`."""
        while True:
            child = await self._usable_child()
            with contextlib.suppress(TaskNotStartedError):
                try:
                    await self._run_in(child, request, respond)
                finally:
                    self._count(child)
                return

    def _count(self, child: ChildProcess) -> None:
        """Count a task of a child, and have another child take its place if it was the last one."""
        child.tasks += 1
        if self._max_tasks is not None and child.tasks >= self._max_tasks and child.alive and self._child is not None:
            child.retired = True
            self._child = asyncio.create_task(self._successor(child))

    async def _usable_child(self) -> ChildProcess:
        while True:
            if self._child is None:
                await self.start()
            spawning, replaced = self._child, self._replaced
            assert spawning is not None  # noqa: S101 - start() has just set it
            child = await asyncio.shield(spawning)
            if child.alive:
                return child
            await replaced.wait()

    async def _run_in(self, child: ChildProcess, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        session = TaskSession(child, next(self._numbers), request, respond, on_measured=self._on_measured)
        serving = asyncio.create_task(session.run())
        limits = _Limits(child, session, respond.signal, self._deadline_seconds, self._grace_seconds)
        try:
            await self._served(serving, child, respond.signal)
        finally:
            limits.end()

    @staticmethod
    async def _served(serving: "asyncio.Task[None]", child: ChildProcess, signal: CancellationSignal) -> None:
        """Wait for the end of a task in its child, cancelled or not; raise what it raised, or the cancellation."""
        cancelled: asyncio.CancelledError | None = None
        while not serving.done():
            try:
                await asyncio.wait((serving,))
            except asyncio.CancelledError as error:
                cancelled = error
                # Cancelled without a signal, because the program ends: do not wait for the handler.
                if not signal.cancelled:
                    child.kill()
        # A handler that was only asked to end may have ended in any way.
        if cancelled is not None and signal.reason is not CancelReason.REQUESTED:
            outcome = serving.exception()
            if signal.cancelled and isinstance(outcome, HandlerRaisedError):
                # What a cancelled handler raised belongs in the log. The slot knows that the task is cancelled.
                raise outcome from None
            raise cancelled
        serving.result()

    async def stop(self) -> None:
        """End the child: it has a moment to run its exit handlers, then it is killed."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        spawning, self._child, self._watching = self._child, None, None
        if spawning is None:
            return
        if not spawning.done():
            spawning.cancel()
        (child,) = await asyncio.gather(spawning, return_exceptions=True)
        if isinstance(child, ChildProcess):
            await child.stop()

    async def _watch(self) -> None:
        """Replace each child that dies, whether it had a task or not."""
        loop = asyncio.get_running_loop()
        short_lives = 0
        while self._child is not None:
            try:
                child = await self._child
            except HandlerUnusableError as error:
                self._on_unusable(error)
                return
            started_at = loop.time()
            exit_ = await child.ended()
            if child.retired:
                continue
            log.warning("%s: %s; starting another", self._handler, exit_)
            self._on_death(exit_)
            short_lives = short_lives + 1 if loop.time() - started_at < _SHORT_LIFE_SECONDS else 0
            self._child = asyncio.create_task(self._replacement(child, _pause_seconds(short_lives)))
            self._replaced.set()
            self._replaced = asyncio.Event()

    async def _replacement(self, dead: ChildProcess, pause_seconds: float) -> ChildProcess:
        closing = asyncio.create_task(dead.close_when_read())
        await asyncio.sleep(pause_seconds)
        try:
            return await self._spawn()
        finally:
            await closing

    async def _successor(self, retired: ChildProcess) -> ChildProcess:
        """Let a child end, and return the next one: two at a time would need the memory of two."""
        stopping = asyncio.create_task(retired.stop())
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await stopping
            raise
        return await self._spawn()

    async def _spawn(self) -> ChildProcess:
        child = await self._spawn_process()
        try:
            self._on_capabilities(child.ready_message.get("capabilities"))
        except HandlerUnusableError:
            await child.close()
            raise
        self._on_activities([(name, version) for name, version in child.ready_message.get("activities", ())])
        return child

    async def _spawn_process(self) -> ChildProcess:
        """Start a process, and another one if a signal ends it in its imports: its task has not been tried."""
        spawn = partial(
            ChildProcess.spawn, self._handler, self._oom_kills, environment=self._environment, python=self._python
        )
        for _ in range(_IMPORT_TRIES - 1):
            try:
                return await spawn()
            except LoadingKilledError as error:
                log.warning("%s; starting another", error)
        return await spawn()


class _Limits:
    """Kills the child of one task at the deadline, or when the handler ignores its cancellation."""

    def __init__(
        self,
        child: ChildProcess,
        session: TaskSession,
        signal: CancellationSignal,
        deadline_seconds: float | None,
        grace_seconds: float,
    ) -> None:
        self._child = child
        self._session = session
        self._signal = signal
        self._grace_seconds = grace_seconds
        self._ended = False
        self._cancelling: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        if deadline_seconds is not None:
            detail = f"the handler ran longer than {deadline_seconds:g} s"
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(deadline_seconds, signal.cancel, CancelReason.DEADLINE, detail)
        # No asyncio task and no timer before a cancellation: most tasks are never cancelled.
        signal.on_cancel(self._cancelled)

    def end(self) -> None:
        """End the limits: from now on the child is not killed."""
        self._ended = True
        for pending in (self._cancelling, self._deadline):
            if pending is not None:
                pending.cancel()

    def _cancelled(self) -> None:
        if self._ended or self._session.handled:
            return
        if self._cancelling is not None:
            self._cancelling.cancel()
        self._cancelling = asyncio.create_task(self._cancel_and_kill())

    async def _cancel_and_kill(self) -> None:
        if self._signal.reason is not CancelReason.DEADLINE:
            if not self._signal.must_end:
                await self._session.send_cancellation()
                return
            with contextlib.suppress(TimeoutError):
                # A handler that reads nothing lets the cancellation wait for as long as it runs.
                async with asyncio.timeout(self._grace_seconds):
                    await self._session.send_cancellation()
                    await asyncio.sleep(self._grace_seconds)
        if not self._session.handled:
            self._child.kill()


def _pause_seconds(short_lives: int) -> float:
    if short_lives < 2:
        return 0.0
    return pause_after(short_lives - 1, first_seconds=_PAUSE_SECONDS, max_seconds=_MAX_PAUSE_SECONDS)
