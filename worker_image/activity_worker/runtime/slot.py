"""A slot polls, runs what a poll brings, and polls again."""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from activity_worker.contract import EXIT_ERROR, EXIT_OK, EXIT_POLLING, EventName, ExitOutput, LeasedTask
from activity_worker.errors import ActivityError
from activity_worker.events import EventEmitter
from activity_worker.runtime.cancellation import CancelReason
from activity_worker.runtime.counters import TaskCounters
from activity_worker.runtime.handler_runner import HandlerRunner
from activity_worker.runtime.lifecycle import LifecycleError, SlotStatus, step
from activity_worker.runtime.options import Polling, TaskOptions
from activity_worker.runtime.poller import Poller, PollingEndedError
from activity_worker.runtime.runner_start import RunnerStart
from activity_worker.runtime.slot_stop import STOP_SECONDS, SlotStop
from activity_worker.runtime.task_run import SlotContext, TaskRun
from activity_worker.sources.protocol import Source

if TYPE_CHECKING:
    from activity_worker.handlers.registry import Activities
    from activity_worker.handlers.signature import Handler

_log = logging.getLogger(__name__)

#: Step Functions takes worker names of at most 80 characters.
MAX_NAME_LENGTH = 80


class SlotTakenError(ActivityError):
    """The slot has a task, an open poll or a reservation, or does not run."""


class Slot:
    """Polls `source` and runs `handler` (or what `runner` runs), one poll or one task at a time.

    `handler` is a function or a registry. The caller closes the source. The defaults of `events`, `options` and
    `polling` are `EventEmitter`, `TaskOptions` and `Polling`; the default of `worker_name` is the host's name. Raises
    `HandlerSignatureError` and `ValueError`.
    """

    def __init__(
        self,
        source: Source,
        handler: "Activities | Handler | None" = None,
        *,
        runner: HandlerRunner | None = None,
        worker_name: str | None = None,
        events: EventEmitter | None = None,
        polling: Polling | None = None,
        options: TaskOptions | None = None,
        counters: TaskCounters | None = None,
    ) -> None:
        if (handler is None) == (runner is None):
            raise ValueError("handler, runner: give exactly one of them")
        self.worker_name = (worker_name or socket.gethostname())[:MAX_NAME_LENGTH]
        self.activity_arn = source.name
        self.events = events or EventEmitter()
        self.counters = counters or TaskCounters()
        self.exit_output: ExitOutput | None = None
        self._runner = runner or _inline_runner(handler)  # type: ignore[arg-type]  # one of them is there
        self.poller = Poller(source, self.worker_name, polling or Polling(), self.counters, self._emit, self._runner)
        self._context = SlotContext(self, source, self._runner, self.events, options or TaskOptions(), self.counters)
        self._status = SlotStatus.READY
        self._main: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._run: TaskRun | None = None
        #: Whether the slot starts no new poll: it takes no further task, or it stands by for a granted lease.
        self.cordoned = self.stands_by = False
        self._reserved = False
        self._slot_stop = SlotStop(self._context, lambda: self._run)
        self._runner_start = RunnerStart(self._runner)
        #: When the slot last became idle, in the event loop's time; None while it has a task or has never run.
        self.idle_since: float | None = None

    @property
    def status(self) -> SlotStatus:
        """The slot's place in its lifecycle."""
        return self._status

    @property
    def busy(self) -> bool:
        """Whether the slot has a task."""
        return self._run is not None

    @property
    def drained(self) -> bool:
        """Whether the slot is cordoned and has no task, no open poll and no reservation."""
        return self.cordoned and not (self.poller.open or self._reserved or self.busy)

    @property
    def free(self) -> bool:
        """Whether `run_task` may bring a task: the slot runs and has no task, no open poll and no reservation."""
        return self._status is SlotStatus.RUNNING and not (self.poller.open or self._reserved or self.busy)

    @property
    def current(self) -> TaskRun | None:
        """The task under way, with its `request`, `respond.progress` and `since`."""
        return self._run

    async def start(self) -> None:
        """Start the runner and begin to poll. A stopped slot may be started again.

        Raises the runner's error, after `worker:error` and `worker:stopped`, and `LifecycleError` for a running slot.
        """
        if self._status is SlotStatus.STOPPED and self._main is not None and not self._main.done():
            raise LifecycleError("the slot has left behind a handler that still runs; start the slot after its end")
        self._status = step(self._status, SlotStatus.STARTING)
        self.exit_output = None
        self._slot_stop.reset()
        self.poller.reset()
        loop = asyncio.get_running_loop()
        self._started = started = loop.create_future()
        self._emit(EventName.WORKER_STARTING)
        self._main = loop.create_task(self._live(started), name=f"activity-worker {self.worker_name}")
        await asyncio.shield(started)

    async def stop(
        self, *, timeout_seconds: float | None = None, abort_polls: bool = False, conclude_seconds: float = STOP_SECONDS
    ) -> None:
        """Start no new poll, await the open one, run the task that it brings, finish. A start is given up.

        After `timeout_seconds` (None: never) the handler is cancelled and its task failed with
        `ActivityPool.WorkerStopped`. From then on a conclusion that its source has not taken yet has
        `conclude_seconds`. `abort_polls` gives up the open poll at once. If the service answers that poll with a task
        at the same moment, the task is lost until it times out.
        """
        if (main := self._main) is None or self._status in {SlotStatus.READY, SlotStatus.STOPPED}:
            return
        self._begin_stop()
        self._runner_start.give_up()
        if abort_polls:
            self.poller.abort(main)
        await asyncio.wait((main,), timeout=timeout_seconds)
        if not main.done():
            await self._slot_stop.end(main, conclude_seconds)
            if self._status is SlotStatus.STOPPING:
                self._end(ExitOutput(EXIT_ERROR, "the handler ignored its cancellation and was left behind"))
            _end_start(self._started, None)

    async def wait_stopped(self) -> ExitOutput:
        """Wait until the slot has stopped, for whatever reason, and return how it ended."""
        if self._main is not None:
            await asyncio.wait((self._main,))
        return self.exit_output or ExitOutput(EXIT_OK)

    async def run_once(self) -> bool:
        """Poll once and run the task that the poll brings, without `start`. Returns whether there was a task.

        Raises the poll's error, and `LifecycleError` after `start`, until the slot has stopped.
        """
        if self._status not in {SlotStatus.READY, SlotStatus.STOPPED}:
            raise LifecycleError(f"run_once: the slot is {self._status} and polls by itself; call stop() first")
        await self._runner.start()
        try:
            task = await self.poller.poll_once()
            await self._work(task)
        finally:
            await self._runner.stop()
        return task is not None

    async def run_task(self, task: LeasedTask, *, beat_at_once: bool = True) -> None:
        """Run a task that the operator granted, like one that a poll brought. Returns when the task is done.

        The slot must be free, or reserved. With `beat_at_once` the first task heartbeat goes out at once: the time of
        the last one may be unknown. Raises `SlotTakenError`.
        """
        if not (self.free or (self._reserved and self._status is not SlotStatus.STOPPED)):
            raise SlotTakenError(f"slot {self.worker_name} has a task, a poll or a reservation, or does not run")
        self._reserved = False
        try:
            await self._work(task, beat_at_once)
        finally:
            self.poller.wake()

    def reserve(self) -> bool:
        """Keep a free slot from polling until `run_task` or `release`. Returns whether the slot was free."""
        if not self.free:
            return False
        self._reserved = True
        return True

    def release(self) -> None:
        """End a reservation."""
        self._reserved = False
        self.poller.wake()

    def cordon(self, cordoned: bool = True) -> None:
        """Start no new poll, or (False) start them again, also before `start`. The open poll's task is run."""
        self.cordoned = cordoned
        self._show_draining()
        self.poller.wake()

    def uncordon(self) -> None:
        """Start new polls again."""
        self.cordon(False)

    def _show_draining(self) -> None:
        """Show the task under way whether the slot takes no other task after it."""
        if self._run is not None:
            self._run.signal.set_draining(self.cordoned or self._status is SlotStatus.STOPPING)

    def cancel_task(self, reason: CancelReason, detail: str) -> None:
        """Cancel the handler under way, if any."""
        if self._run is not None:
            self._run.cancel(reason, detail)

    async def _live(self, started: "asyncio.Future[None]") -> None:
        error: BaseException | None = None
        try:
            if self._status is SlotStatus.STARTING:
                await self._runner_start.run()
            if self._status is SlotStatus.STARTING:
                self._status = step(self._status, SlotStatus.RUNNING)
                self.idle_since = asyncio.get_running_loop().time()
                self._emit(EventName.WORKER_RUNNING)
            started.set_result(None)
            await self._loop()
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - `exit_output` says why the slot ended
            error = _shown(self, raised)
        # The runner stops: no task may come any more.
        self._begin_stop()
        self._reserved = False
        await self._finish(error, started)
        if isinstance(error, asyncio.CancelledError):
            raise error

    async def _loop(self) -> None:
        while self._status is SlotStatus.RUNNING:
            if self._held_back:
                await self.poller.pause(None)
                continue
            if not await self.poller.wait_for_handler() or self._held_back or self._status is not SlotStatus.RUNNING:
                continue
            task = await self.poller.poll(lambda: self._status is SlotStatus.RUNNING)
            await self._work(task)
        while self._run is not None:
            await self.poller.pause(None)

    @property
    def _held_back(self) -> bool:
        return self.cordoned or self.stands_by or self._reserved or self._run is not None

    async def _work(self, task: LeasedTask | None, beat_at_once: bool = False) -> None:
        """Run a task, and each task that the answer to a conclusion has brought."""
        while task is not None:
            self._run = run = TaskRun(self._context, task)
            self._show_draining()
            self.idle_since = None
            self._slot_stop.task_begins()
            try:
                await run.execute(beat_at_once=beat_at_once)
            finally:
                self._run = None
                self.idle_since = run.ended
            task = run.take_next()

    def _begin_stop(self) -> None:
        if self._status in {SlotStatus.STARTING, SlotStatus.RUNNING}:
            self._status = step(self._status, SlotStatus.STOPPING)
            self._emit(EventName.WORKER_STOPPING)
            self._show_draining()
            self.poller.wake()

    async def _finish(self, error: BaseException | None, started: "asyncio.Future[None]") -> None:
        try:
            await self._runner.stop()
        except Exception as raised:  # noqa: BLE001 - the slot ends with this error
            error = error or _shown(self, raised)
        if self._context.background_tasks:
            await asyncio.gather(*self._context.background_tasks, return_exceptions=True)
        if self._status is SlotStatus.STOPPING:
            self._end(_exit_output(error))
        _end_start(started, error)

    def _emit(self, name: EventName, *payload: object) -> None:
        self.events.emit(name, self, *payload)

    def _end(self, output: ExitOutput) -> None:
        self.exit_output = output
        self._status = step(self._status, SlotStatus.STOPPED)
        self._emit(EventName.WORKER_STOPPED, output)


def _end_start(started: "asyncio.Future[None] | None", error: BaseException | None) -> None:
    """Tell who waits for the start that the slot has ended, if it never ran."""
    if started is None or started.done():
        return
    if isinstance(error, Exception):
        started.set_exception(error)
    else:
        started.cancel()


def _shown(slot: Slot, error: BaseException) -> BaseException:
    """Show with what a slot ends, and return it."""
    slot.events.emit(EventName.WORKER_ERROR, slot, _cause_of(error))
    _log.error("slot %s ends: %s", slot.worker_name, _exit_output(error).error)
    return error


def _cause_of(error: BaseException) -> BaseException:
    cause = error.__cause__ if isinstance(error, PollingEndedError) else error
    return cause or error


def _exit_output(error: BaseException | None) -> ExitOutput:
    if error is None:
        return ExitOutput(EXIT_OK)
    code = EXIT_POLLING if isinstance(error, PollingEndedError) else EXIT_ERROR
    return ExitOutput(code, str(error) or type(error).__name__)


def _inline_runner(handler: "Activities | Handler") -> HandlerRunner:
    # A worker whose handlers run in processes of their own needs neither this runner nor what reads signatures.
    from activity_worker.runtime.inline_runner import InlineRunner  # noqa: PLC0415

    return InlineRunner(handler)
