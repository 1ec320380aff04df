"""Runs one worker, in a pod or on a terminal: takes settings, returns the exit code.

This process polls, sends task heartbeats and reports, and serves the probes. Each slot's handler runs in a child
process. The supervisor starts the children, reports, polls, drains and stops, in this order. A handler that cannot be
imported ends the worker at its start. The first SIGTERM or SIGINT begins the stop. On a terminal a second Ctrl-C ends
the worker at once; further signals change nothing otherwise.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator

from activity_worker.config.settings import ReportSettings, WorkerSettings
from activity_worker.contract import (
    EXIT_ERROR,
    EXIT_OK,
    EXIT_POLLING,
    OOM_KILLED,
    VERSION,
    Directive,
    EventName,
    ExitOutput,
    PollFault,
    PollTrouble,
    WorkerState,
)
from activity_worker.errors import SourceError
from activity_worker.events import EventEmitter
from activity_worker.runtime.lifecycle import may_step, step
from activity_worker.runtime.slot import Slot
from activity_worker.runtime.slot_pool import SlotPool
from activity_worker.sources.opening import open_source, source_facts
from activity_worker.sources.protocol import Source
from activity_worker.subprocess.process import HandlerUnusableError, ProcessExit
from activity_worker.supervisor.event_log import EventRecorder
from activity_worker.supervisor.granted_leases import GrantedLeases
from activity_worker.supervisor.handler_runner_factory import HandlerRunnerFactory
from activity_worker.supervisor.health import WorkerHealthServer
from activity_worker.supervisor.interrupts import TerminalInterrupts, describe_wait
from activity_worker.supervisor.metrics import WorkerMetrics
from activity_worker.supervisor.options_of_settings import polling_of, stop_limits_of, task_options_of
from activity_worker.supervisor.report_state import Instructions, PodIdentity, ReportState, WorkerSnapshot
from activity_worker.supervisor.reporter import COALESCE_SECONDS, LAST_REPORT_SECONDS, Reporter
from activity_worker.supervisor.stand_by import StandBy
from activity_worker.supervisor.task_list import running_tasks

#: Seconds after which the worker checks its state again without an event.
_CHECK_SECONDS = 0.5

log = logging.getLogger(__name__)


class Supervisor:
    """Runs one worker on `source`. The caller closes the source."""

    def __init__(self, settings: WorkerSettings, source: Source) -> None:
        self._settings = settings
        self._source_facts = source_facts(settings.source, source)
        self._state = WorkerState.STARTING
        self._exit: ExitOutput | None = None
        self._stop = asyncio.Event()
        self._change = asyncio.Event()
        self._problem = ""
        self.metrics = WorkerMetrics(VERSION, settings.slots)
        self._events = EventEmitter()
        self._reports = ReportState(_identity(settings))
        self._handler_runners = HandlerRunnerFactory(
            settings,
            source,
            self.metrics,
            on_unusable=self._give_up,
            on_death=self._handler_died,
        )
        self._slot_pool = SlotPool(
            source,
            runner_factory=self._handler_runners.create,
            slots=settings.slots,
            name_prefix=settings.name,
            events=self._events,
            polling=polling_of(settings),
            options=task_options_of(settings, self._handler_runners.heartbeat_seconds),
        )
        self._slot_pool.counters.on_heartbeat_failure = self.metrics.heartbeat_refused
        self._event_recorder = EventRecorder(
            self._events, self.metrics, record=self._record, on_change=self._changed, failures=settings.logging.failures
        )
        self._granted_leases = GrantedLeases(
            self._slot_pool,
            self._reports.claims,
            heartbeat_seconds=self._handler_runners.heartbeat_seconds,
            on_change=self._changed,
        )
        self._stand_by = StandBy(self._slot_pool)
        self._events.on(EventName.WORKER_STOPPED, self._slot_stopped)
        self._health = WorkerHealthServer(
            self.metrics.registry, lambda: self._state, lambda: self._problem, lambda: running_tasks(self._slot_pool)
        )
        self._reporter = self._make_reporter(settings.report)
        self.interrupts = TerminalInterrupts(self._slot_pool, self.request_stop, self._handler_runners.kill)
        self.metrics.watch(
            in_progress=lambda: sum(slot.busy for slot in self._slot_pool.members),
            draining=lambda: self._state in {WorkerState.DRAINING, WorkerState.DRAINED, WorkerState.STOPPING},
        )

    @property
    def state(self) -> WorkerState:
        """The worker's state, as it reports it."""
        return self._state

    @property
    def health_port(self) -> int:
        """The port of the health server; 0 while it does not listen."""
        return self._health.port

    def request_stop(self) -> None:
        """Drain, then stop. A second call changes nothing."""
        if not self._stop.is_set():
            wait = describe_wait(self._slot_pool.members, self._settings.drain_timeout_seconds)
            log.info("stopping: waiting for %s", wait)
        self._stop.set()
        self._changed()

    async def run(self) -> int:
        """Run until `request_stop`; returns the exit code."""
        self._record(EventName.WORKER_STARTING, self._settings.handler)
        try:
            if self._settings.health_port is not None:
                await self._health.start(self._settings.health_port)
            async with self._reporting():
                await self._run_slots()
        finally:
            await self._health.stop()
        return self._exit.code if self._exit is not None else EXIT_OK

    async def _run_slots(self) -> None:
        # No slot polls before the operator's first reply: it may offer the task for which this worker was started.
        self._slot_pool.cordon()
        starting = asyncio.create_task(self._slot_pool.start())
        try:
            if await _done_before(self._stop, starting):
                registering = asyncio.create_task(self._handler_runners.register_activity_types())
                if await _done_before(self._stop, registering):
                    await self._take_tasks()
                # The next worker registers what a stop leaves out.
                registering.cancel()
        except Exception as error:  # noqa: BLE001 - every error is reported, and tasks are finished
            self._give_up(error)
        await self._drain_and_stop()
        await asyncio.gather(starting, return_exceptions=True)

    async def _take_tasks(self) -> None:
        facts = {"handler": self._settings.handler, "slots": self._settings.slots, **self._source_facts}
        log.info("worker ready", extra={"facts": facts})
        if self._reporter is not None:
            self._ready_to_report.set()
            await self._reporter.first_answer()
        if self._state is WorkerState.STARTING:
            self._become(WorkerState.RUNNING)
            self._slot_pool.uncordon()
        while not self._stop.is_set():
            await self._next_change()
            if self._state is WorkerState.DRAINING and self._slot_pool.drained and self._granted_leases.settled:
                self._become(WorkerState.DRAINED)

    async def _drain_and_stop(self) -> None:
        """Start no new poll, then finish within the limits of `stop_limits_of`."""
        self._become(WorkerState.STOPPING)
        self._granted_leases.cordon()
        self._cordon()
        limits = stop_limits_of(self._settings, _now())
        while not (self._slot_pool.drained and self._granted_leases.settled) and _now() < limits.run_until:
            await self._next_change(limits.run_until - _now())
        # The service may answer an open poll with a task until the poll ends. Giving up the poll would lose that task.
        while any(slot.poller.open for slot in self._slot_pool.members) and _now() < limits.polled_until:
            await self._next_change()
        # Of the polls, only one that no service answers any more is open now.
        left = max(limits.concluded_until - _now(), 0.0)
        await self._slot_pool.stop(timeout_seconds=0.0, abort_polls=True, conclude_seconds=left)
        await self._granted_leases.close(limits.concluded_until - _now())
        self._exit = self._exit or ExitOutput(EXIT_OK)
        self._become(WorkerState.STOPPED)
        log.info("worker stopped", extra={"facts": {"code": self._exit.code}})

    @contextlib.asynccontextmanager
    async def _reporting(self) -> AsyncIterator[None]:
        self._ready_to_report = asyncio.Event()
        if self._reporter is None:
            yield
            return
        running = asyncio.create_task(self._report_when_ready(self._reporter))
        try:
            yield
            self._ready_to_report.set()
            await self._send_last_report(self._reporter)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _send_last_report(self, reporter: Reporter) -> None:
        """Send the last report. If its reply grants leases, fail them and send one more report."""
        deadline = _now() + LAST_REPORT_SECONDS
        await reporter.send_last_report()
        if await self._granted_leases.close(deadline - _now()):
            await reporter.send_last_report(deadline - _now())

    async def _report_when_ready(self, reporter: Reporter) -> None:
        """Report once the handler is imported. A worker that ends before that reports its end only."""
        await self._ready_to_report.wait()
        try:
            await reporter.run()
        except Exception as error:
            self._problem = f"the report loop has died: {type(error).__name__}"
            log.exception("the report loop has died")
            raise

    def _follow(self, instructions: Instructions) -> None:
        """Carry out the reply to a report: its directive, then its grants."""
        if not instructions.valid:
            return
        if instructions.directive is Directive.DRAIN and self._state in {WorkerState.STARTING, WorkerState.RUNNING}:
            log.info("the operator ordered this worker to drain")
            self._become(WorkerState.DRAINING)
            self._cordon()
        elif instructions.directive in _SERVE and self._state is WorkerState.DRAINING:
            log.info("the operator ended the drain: the worker takes tasks again")
            self._become(WorkerState.RUNNING)
            self._handler_runners.drain(False)
            self._slot_pool.uncordon()
        self._granted_leases.cordon(self._state not in {WorkerState.STARTING, WorkerState.RUNNING})
        # Offers take free slots first: a slot that polls cannot take one for up to a minute.
        self._granted_leases.grant(instructions.grants)
        self._stand_by.follow(instructions.directive, self._reports.interval_seconds)

    def _cordon(self) -> None:
        """Take no new task, and hand back the durable tasks that another worker can continue."""
        self._slot_pool.cordon()
        self._handler_runners.drain(True)

    def _become(self, state: WorkerState) -> None:
        if self._state is state or not may_step(self._state, state):
            return
        self._state = step(self._state, state)
        if (name := _STATE_EVENTS.get(state)) is not None:
            self._record(name, self._exit.error if self._exit is not None else "")
        self._changed()

    def _give_up(self, error: Exception) -> None:
        """End with an error: without a usable handler the worker can run no task, and the pod must show that."""
        message = str(error) if isinstance(error, HandlerUnusableError) else type(error).__name__
        log.error("%s", message, exc_info=None if isinstance(error, HandlerUnusableError) else error)
        self._end_with(ExitOutput(EXIT_ERROR, message))

    def _slot_stopped(self, _: Slot, output: ExitOutput) -> None:
        if output.code == EXIT_POLLING:
            self._end_with(output)

    def _end_with(self, output: ExitOutput) -> None:
        if self._exit is None:
            self._exit = output
            self._record(EventName.WORKER_ERROR, output.error)
        self.request_stop()

    def _handler_died(self, ending: ProcessExit) -> None:
        # The pod's status shows an OOM kill only if the kernel killed the whole container.
        if ending.out_of_memory:
            self._record(OOM_KILLED, str(ending))

    def _make_reporter(self, settings: ReportSettings | None) -> Reporter | None:
        observed = (self._reports, self._snapshot, self._follow, self.metrics)
        return None if settings is None else Reporter(settings, *observed)

    def _snapshot(self) -> WorkerSnapshot:
        now = _now()
        pool = self._slot_pool.snapshot(now)
        waiting = self._granted_leases.held(now)
        return WorkerSnapshot(
            state=self._state,
            busy=pool.busy + len(waiting),
            open_polls=pool.open_polls,
            idle_seconds=0.0 if waiting else pool.idle_seconds,
            leases=(*pool.leases, *waiting),
            counters=pool.counters,
            exit=self._exit if self._state is WorkerState.STOPPED else None,
            poll_trouble=_poll_trouble(pool.poll_trouble),
        )

    def _record(self, name: str, message: str) -> None:
        self._reports.record(name, time.time(), message)

    def _changed(self) -> None:
        self._change.set()
        if self._reporter is not None:
            self._reporter.changed()

    async def _next_change(self, timeout_seconds: float = _CHECK_SECONDS) -> None:
        # An event comes shortly before its change is complete, and many events come at once.
        self._change.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_seconds, _CHECK_SECONDS)):
                await self._change.wait()
        await asyncio.sleep(COALESCE_SECONDS)


#: The directives that end a drain.
_SERVE = frozenset({Directive.RUN, Directive.STANDBY})


_STATE_EVENTS = {
    WorkerState.RUNNING: EventName.WORKER_RUNNING,
    WorkerState.STOPPING: EventName.WORKER_STOPPING,
    WorkerState.STOPPED: EventName.WORKER_STOPPED,
}


def _identity(settings: WorkerSettings) -> PodIdentity:
    report = settings.report
    return PodIdentity(
        namespace=report.namespace if report else "",
        pool=report.pool if report else "",
        pod_name=report.pod_name if report else settings.name,
        pod_uid=report.pod_uid if report else "",
        incarnation=os.urandom(16).hex(),
        slots=settings.slots,
        runtime=VERSION,
    )


def _poll_trouble(error: Exception | None) -> PollTrouble | None:
    if error is None:
        return None
    if isinstance(error, SourceError):
        return PollTrouble(error.fault, error.code, error.message)
    return PollTrouble(PollFault.OTHER, type(error).__name__)


async def _done_before(stop: asyncio.Event, work: asyncio.Task[None]) -> bool:
    """Wait for `work` or for `stop`, and return whether the work is done. Raises the work's error."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if work.done():
        work.result()
    return work.done()


def _now() -> float:
    return asyncio.get_running_loop().time()


async def supervise(settings: WorkerSettings) -> int:
    """Run a worker on its source until a signal; returns the exit code."""
    source = await open_source(settings.source)
    try:
        supervisor = Supervisor(settings, source)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, supervisor.request_stop)
        at_terminal = sys.stdin is not None and sys.stdin.isatty()
        interrupted = supervisor.interrupts.receive if at_terminal else supervisor.request_stop
        loop.add_signal_handler(signal.SIGINT, interrupted)
        return await supervisor.run()
    finally:
        await source.close()


def run_until_stopped(settings: WorkerSettings) -> int:
    """Run a worker in an event loop of its own, uvloop's where it exists; returns the exit code."""
    factory = None
    if sys.platform != "win32":
        with contextlib.suppress(ImportError):
            import uvloop  # noqa: PLC0415 - optional outside the image

            factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(supervise(settings))
