"""One task from `task:received` to `task:done`: the handler, its heartbeats, its deadline, its conclusion."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from activity_worker.contract import EventName, HeldLease, LeasedTask
from activity_worker.errors import (
    ActivityError,
    CancellationRequestedError,
    CannotConcludeLaterError,
    ConcludeLater,
    DeadlineExceededError,
    InvalidTaskInputError,
    InvalidTokenError,
    LeaseLostError,
    NoResponseSentError,
    OutputRejectedError,
    ResponseAlreadySentError,
    SourceError,
    TaskCancelled,
)
from activity_worker.events import EventEmitter, ReceivedTask
from activity_worker.runtime.cancellation import CANCELLATION_ERRORS, CancellationSignal, CancelReason
from activity_worker.runtime.counters import TaskCounters
from activity_worker.runtime.encoding import MAX_HEARTBEAT_DETAILS_BYTES, encode_details, parse_task_input, trim
from activity_worker.runtime.failure import FAILURE_LOGGER, failure_of
from activity_worker.runtime.handler_runner import HandlerRunner
from activity_worker.runtime.heartbeat import HeartbeatListener, HeartbeatLoop
from activity_worker.runtime.options import TaskOptions
from activity_worker.runtime.toolkit import TaskResponseToolkit
from activity_worker.sources.protocol import Source, SourceForms
from activity_worker.task import NO_ORIGIN, RetryRequest, TaskRequest, take_origin
from activity_worker.wire.backoff import pause_after

if TYPE_CHECKING:
    from activity_worker.runtime.slot import Slot

_log = logging.getLogger(__name__)
#: The failures of tasks. A supervisor logs them with more facts, and turns these lines off.
_failure_log = logging.getLogger(FAILURE_LOGGER)


@dataclass(frozen=True, slots=True)
class SlotContext:
    """What all tasks of a slot share. A stop waits for `background_tasks`."""

    slot: "Slot"
    source: Source
    runner: HandlerRunner
    events: EventEmitter
    options: TaskOptions
    counters: TaskCounters
    background_tasks: "set[asyncio.Task[None]]" = field(default_factory=set)
    forms: SourceForms = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "forms", SourceForms.of(self.source))


class TaskCalls:
    """The calls of one task to its source: heartbeats, and the conclusion. It is the channel of the task's toolkit.

    `retry` is what the task's failure says about another attempt, where its source asks.

    `lost` is set once the lease is lost; `concluding_ended` is called after each conclusion, whether it succeeded or
    not.
    """

    __slots__ = (
        "_conclusion_failed",
        "_context",
        "_ended",
        "_loop",
        "_since",
        "_token",
        "beats",
        "lost",
        "respond",
        "retry",
    )

    respond: TaskResponseToolkit

    def __init__(
        self,
        context: SlotContext,
        token: str,
        listener: HeartbeatListener,
        concluding_ended: Callable[[], object],
    ) -> None:
        self._context = context
        self._token = token
        self._ended = concluding_ended
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._conclusion_failed = False
        self.lost: SourceError | None = None
        # An answer of the handler itself is final.
        self.retry = RetryRequest(wanted=False)
        self.beats = HeartbeatLoop(self._send_heartbeat, context.options.heartbeat_seconds, listener)

    async def heartbeat(self) -> None:
        """Send a task heartbeat now; after a response it no longer matters what the service says."""
        try:
            await self.beats.beat()
        except LeaseLostError:
            if self.respond.response is None:
                raise

    def heartbeat_soon(self) -> None:
        """Send a task heartbeat without waiting; from any thread."""
        self._loop.call_soon_threadsafe(self.beats.soon)

    async def succeed(self, output: str) -> None:
        """Conclude with success; an output that the service refuses raises `OutputRejectedError`."""
        source, token = self._context.source, self._token
        try:
            await self._conclude(lambda: source.succeed(token, output))
        except (LeaseLostError, InvalidTokenError):
            raise
        except SourceError as error:
            if error.retryable:
                raise
            raise OutputRejectedError(f"the service refused the output: {error}") from error
        self._context.counters.task_succeeded(self._loop.time() - self._since)

    async def fail(self, error: str, cause: str) -> None:
        """Conclude with a failure."""
        source, token, retry = self._context.source, self._token, self.retry
        retrying = self._context.forms.retrying
        if retrying is not None:
            await self._conclude(lambda: retrying.fail_with_retry(token, error, cause, retry))
        else:
            await self._conclude(lambda: source.fail(token, error, cause))
        self._context.counters.task_failed(self._loop.time() - self._since, error)

    async def confirm_cancellation(self, details: str) -> None:
        """Conclude as cancelled."""
        source, token = self._context.forms.cancellable, self._token
        assert source is not None  # noqa: S101 - no other source requests a cancellation
        await self._conclude(lambda: source.confirm_cancellation(token, details))

    async def _send_heartbeat(self) -> bool | None:
        source = self._context.forms.cancellable
        if source is None:
            await self._context.source.heartbeat(self._token)
            return None
        return await source.heartbeat_with(self._token, trim(self.progress_text(), MAX_HEARTBEAT_DETAILS_BYTES))

    def progress_text(self) -> str:
        """Return the handler's last progress as the text of a heartbeat."""
        progress = self.respond.progress
        return "" if progress is None else encode_details(progress.details)

    async def _conclude(self, send: Callable[[], Awaitable[None]]) -> None:
        limit_seconds = 0.0 if self._conclusion_failed else self._context.options.conclude_for_seconds
        source = self._context.forms.fetching
        if source is not None:
            source.want_next(self._token, self.respond.handler_ended and not self.respond.signal.draining)
        try:
            await conclude(send, lost=lambda: self.lost, for_seconds=limit_seconds, stopping=self._stopping)
        except (LeaseLostError, InvalidTokenError) as error:
            self.lost = error
            raise
        except SourceError as error:
            # An output that never arrived gets one try as a failure, not the whole limit again.
            self._conclusion_failed = error.retryable
            raise
        finally:
            self._ended()
        self.beats.stop()

    def _stopping(self) -> bool:
        return self.respond.signal.draining


class TaskRun:
    """One task in its slot."""

    __slots__ = (
        "_calls",
        "_cancellations",
        "_context",
        "_deadline",
        "_errored",
        "_forced",
        "_grace",
        "_host",
        "_limit",
        "_loop",
        "_unreadable",
        "ended",
        "received",
        "request",
        "respond",
        "signal",
        "since",
        "task",
    )

    def __init__(self, context: SlotContext, task: LeasedTask) -> None:
        self.task = task
        self.received = ReceivedTask(context.slot, task)
        self.signal = CancellationSignal()
        self._context = context
        self._loop = asyncio.get_running_loop()
        self.since = self.ended = self._loop.time()
        self._calls = TaskCalls(
            context,
            task.token,
            HeartbeatListener(self._beat_accepted, self._beat_failed, self._beat_lost, self._cancel_requested),
            self._concluding_ended,
        )
        self._unreadable: InvalidTaskInputError | None = None
        value, origin = None, NO_ORIGIN
        try:
            value, origin = take_origin(parse_task_input(task), task.activity)
        except InvalidTaskInputError as error:
            self._unreadable = error
        self._limit = limit = _shorter(context.options.deadline_seconds, task.deadline_seconds)
        deadline_at = None if limit is None else time.time() + limit
        self.request = TaskRequest(context.slot, task, value, origin, deadline_at)
        self.respond = TaskResponseToolkit(self.request, self._calls, events=context.events, signal=self.signal)
        self._calls.respond = self.respond
        self._deadline: asyncio.TimerHandle | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._host: asyncio.Task[object] | None = None
        self._cancellations = 0
        self._forced = False
        self._errored = False

    async def execute(self, *, beat_at_once: bool = False) -> None:
        """Run the handler and conclude the task. Raises only the cancellation of the coroutine that runs it."""
        events, counters = self._context.events, self._context.counters
        counters.received += 1
        events.emit(EventName.TASK_RECEIVED, self.received)
        try:
            await self._start(beat_at_once)
        except asyncio.CancelledError as error:
            # Not ours: the program is being torn down. The task is left to the service's time-out.
            self._emit_errored(error)
            raise
        finally:
            self._end()
            self.ended = self._loop.time()
            counters.busy_seconds += self.ended - self.since
            events.emit(EventName.TASK_DONE, self.request, self.respond.response)

    def take_next(self) -> LeasedTask | None:
        """Return the task that the answer to the conclusion has brought for this slot, once."""
        source = self._context.forms.fetching
        return None if source is None else source.take_next(self.task.token)

    def held(self, now: float) -> HeldLease | None:
        """Return the lease with its age, for a report; None once the task is answered. `now` is the loop's time."""
        if self.respond.response is not None:
            return None
        return HeldLease(self.request.lease_id, max(now - self.since, 0.0))

    def cancel(self, reason: CancelReason, detail: str) -> None:
        """Tell the handler to end, by the signal and, where it can be, by cancelling it. The first reason stands."""
        if self.signal.cancel(reason, detail):
            # Later, because the handler itself may be what is running now.
            self._loop.call_soon(self._cancel_handler)

    async def _start(self, beat_at_once: bool) -> None:
        if self._unreadable is not None:
            await self._settle(self._unreadable)
            return
        self._calls.beats.start(0.0 if beat_at_once else None)
        if self._limit is not None:
            self._deadline = self._loop.call_later(self._limit, self._deadline_passed)
        self._context.events.emit(EventName.TASK_START, self.request)
        error = await self._handle()
        if isinstance(error, ConcludeLater) and self.respond.response is None:
            self.respond.leave_to_others()
        elif error is not None:
            await self._settle(error)

    async def _handle(self) -> BaseException | None:
        """Run the handler; return what went wrong."""
        host = asyncio.current_task()
        assert host is not None  # noqa: S101 - a coroutine on asyncio runs in a task
        outer = host.cancelling()
        error: BaseException | None = None
        self._host = host
        try:
            await self._context.runner.run(self.request, self.respond)
        except GeneratorExit:
            raise
        except BaseException as raised:  # noqa: BLE001 - SystemExit in a handler is its task's failure, not our end
            error = raised
        finally:
            self._host = None
            for _ in range(self._cancellations):
                host.uncancel()
        if host.cancelling() > outer:
            raise error if isinstance(error, asyncio.CancelledError) else asyncio.CancelledError
        return self._error_to_report(error)

    def _error_to_report(self, error: BaseException | None) -> BaseException | None:
        answered = self.respond.response is not None
        if isinstance(error, ConcludeLater):
            return error if getattr(self._context.source, "tokens_travel", False) else CannotConcludeLaterError()
        if self.signal.reason is CancelReason.REQUESTED:
            if isinstance(error, TaskCancelled | asyncio.CancelledError | CancellationRequestedError):
                return None if answered else self._cancellation(error)
        elif self.signal.reason is not None and (error is not None or not answered):
            return self._cancellation(error)
        if error is None and not answered:
            return NoResponseSentError()
        return error

    def _cancellation(self, cause: BaseException | None) -> ActivityError:
        assert self.signal.reason is not None  # noqa: S101 - asked only after the signal was given
        error = CANCELLATION_ERRORS[self.signal.reason](self.signal.detail)
        error.__cause__ = cause
        return error

    async def _settle(self, error: BaseException) -> None:
        """Say that the handling failed, and fail the task unless it is answered, lost, or to be left."""
        self._emit_errored(error)
        failure = failure_of(error)
        if not isinstance(error, CancellationRequestedError):
            _failure_log.warning(
                "task %s: %s: %s",
                self.request.lease_id,
                failure.name,
                failure.message,
                extra={"traceback": failure.traceback},
            )
        leave = self._context.options.on_error == "leave" and not getattr(error, "always_fails", False)
        if leave or self._calls.lost is not None or self.respond.response is not None:
            return
        try:
            if isinstance(error, CancellationRequestedError):
                await self.respond.confirm_cancellation(self._cancellation_details(error))
            else:
                self._calls.retry = self._retry_request(error)
                await self.respond.failure(failure.name, failure.cause)
        except ResponseAlreadySentError:
            pass  # the handler, cancelled and still going, answered in between
        except SourceError as refused:
            _log.warning("task %s could not be failed: %s", self.request.lease_id, refused.code)
        except Exception:  # noqa: BLE001 - a source's mistake must not end the worker
            _log.exception("task %s could not be failed", self.request.lease_id)

    def _retry_request(self, error: BaseException) -> RetryRequest:
        terms, wanted = self.respond.retry_terms, self.respond.retry_wanted
        interrupted = getattr(error, "interrupted", False)
        if isinstance(error, DeadlineExceededError):
            wanted = terms is None or terms.on_deadline
            # The task waited for its process until then: it has not been tried.
            interrupted = not self.respond.handler_has_started()
        elif getattr(error, "always_fails", False):
            wanted = False
        elif wanted is None:
            wanted = True
        return RetryRequest(wanted, terms, interrupted)

    def _emit_errored(self, error: BaseException) -> None:
        if not self._errored:
            self._errored = True
            self._context.events.emit(EventName.TASK_ERRORED, self.received, error)

    def _concluding_ended(self) -> None:
        if self.signal.cancelled:
            self._loop.call_soon(self._cancel_handler)

    def _cancel_handler(self) -> None:
        """Cancel the handler, once a reason, and not while an answer is under way: that one still counts."""
        must_end = self.signal.must_end
        if self._host is None or self._forced or self.respond.answering:
            return
        if not must_end and (self._cancellations or self.respond.response is not None):
            return
        self._cancellations += 1
        self._forced = must_end
        self._host.cancel(self.signal.detail)
        if not must_end:
            return
        self._grace = self._loop.call_later(self._context.options.cancel_grace_seconds, self._ignored)

    def _ignored(self) -> None:
        if self._host is None:
            # The handler has ended, and the task is being concluded.
            return
        _log.warning("task %s: the handler ignores its cancellation (%s)", self.request.lease_id, self.signal.reason)
        task = self._loop.create_task(self._settle(self._cancellation(None)))
        self._context.background_tasks.add(task)
        task.add_done_callback(self._context.background_tasks.discard)

    def _deadline_passed(self) -> None:
        self.cancel(CancelReason.DEADLINE, f"the handler ran longer than {self._limit:g} s")

    def _beat_accepted(self) -> None:
        self._context.events.emit(EventName.TASK_HEARTBEAT, self.request)

    def _beat_failed(self, _: SourceError) -> None:
        self._context.counters.heartbeat_failed()

    def _cancellation_details(self, error: CancellationRequestedError) -> str:
        """Return what the handler said when it ended, else its last progress."""
        said = error.__cause__.details if isinstance(error.__cause__, TaskCancelled) else ""
        return said or self._calls.progress_text()

    def _cancel_requested(self) -> None:
        if self.respond.response is None:
            self.cancel(CancelReason.REQUESTED, "the cancellation of the task is requested")

    def _beat_lost(self, error: LeaseLostError) -> None:
        self._calls.lost = error
        self.cancel(CancelReason.LEASE_LOST, str(error))

    def _end(self) -> None:
        self._calls.beats.stop()
        for handle in (self._deadline, self._grace):
            if handle is not None:
                handle.cancel()


def _shorter(one: float | None, other: float | None) -> float | None:
    return min((seconds for seconds in (one, other) if seconds is not None), default=None)


FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 30.0
#: The longest pause of a worker that drains or stops: a longer one could outlast it.
STOPPING_PAUSE_SECONDS: Final = 5.0


async def conclude(
    send: Callable[[], Awaitable[None]],
    *,
    lost: Callable[[], SourceError | None],
    for_seconds: float,
    spread: Callable[[], float] = random.random,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Call `send` until it succeeds; raises its last `SourceError`.

    Throttling, silence, faults of the service and lacking credentials are tried again, with pauses that double up to
    30 s (5 s while `stopping`), for `for_seconds` at most. Any other answer ends it, and so does `lost`: what a task
    heartbeat has learnt meanwhile.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    failures = 0
    while True:
        try:
            return await send()
        except SourceError as error:
            failures += 1
            longest = STOPPING_PAUSE_SECONDS if stopping() else MAX_PAUSE_SECONDS
            pause = pause_after(failures, first_seconds=FIRST_PAUSE_SECONDS, max_seconds=longest)
            wait = pause * (0.5 + spread() / 2)
            if not error.retryable or loop.time() - started + wait > for_seconds:
                raise
        await asyncio.sleep(wait)
        gone = lost()
        if gone is not None:
            raise gone
