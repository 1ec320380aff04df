"""Turns a pool's events into log lines, metrics and the few events that go to the operator.

A line has the task's lease id, what happened, and how long it took. The line of a failure has the error's name, message
and traceback, or less of it. No line has a token or a payload.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from activity_worker.contract import EventName, lease_id
from activity_worker.errors import (
    CancellationRequestedError,
    LeaseLostError,
    ResponseAlreadySentError,
    SourceError,
    TaskCancelledError,
)
from activity_worker.events import EventEmitter, PollingFailure, ReceivedTask
from activity_worker.runtime.failure import FAILURE_LOGGER, Failure, failure_of
from activity_worker.runtime.slot import Slot
from activity_worker.supervisor.metrics import WorkerMetrics
from activity_worker.task import TaskRequest, TaskResponse

#: For each result of a response that is no failure: the metrics' outcome, and the log's line.
_OUTCOMES: Final = {
    "success": ("succeeded", "task succeeded"),
    "cancelled": ("cancelled", "task cancelled, as its decider asked"),
    "later": ("handed_over", "task handed over: the process that has its token concludes it"),
}
#: `record(name, message)`: remember an event for the operator.
Record = Callable[[str, str], None]

log = logging.getLogger(__name__)


class EventRecorder:
    """Listens to `events`. `on_change` is called whenever a report would have other contents.

    `failures`, one of `LOG_FAILURES`, is how much the line of a failed task says.
    """

    def __init__(
        self,
        events: EventEmitter,
        metrics: WorkerMetrics,
        *,
        record: Record,
        on_change: Callable[[], None],
        failures: str = "traceback",
    ) -> None:
        # The lines below say more than the slots' own ones.
        logging.getLogger(FAILURE_LOGGER).disabled = True
        self._failures = failures
        self._metrics = metrics
        self._record = record
        self._on_change = on_change
        self._received: dict[str, float] = {}
        self._errors: dict[str, BaseException] = {}
        self._polls: dict[str, float] = {}
        events.on(EventName.WORKER_ERROR, self._slot_error)
        events.on(EventName.POLLING_STARTING, self._polling)
        events.on(EventName.POLLING_SUCCESS, lambda slot, _: self._polled(slot))
        events.on(EventName.POLLING_ERROR, self._polling_error)
        events.on(EventName.TASK_RECEIVED, self._task_received)
        events.on(EventName.TASK_START, self._task_start)
        events.on(EventName.TASK_HEARTBEAT, lambda _: metrics.heartbeat_accepted(time.time()))
        events.on(EventName.TASK_ERRORED, self._task_errored)
        events.on(EventName.TASK_DONE, self._task_done)

    def _slot_error(self, slot: Slot, error: BaseException) -> None:
        self._polls.pop(slot.worker_name, None)
        self._record(EventName.WORKER_ERROR, _short(error))

    def _polling(self, slot: Slot) -> None:
        self._polls[slot.worker_name] = _now()
        self._on_change()

    def _polled(self, slot: Slot) -> None:
        began = self._polls.pop(slot.worker_name, None)
        if began is not None:
            self._metrics.polled(_now() - began)
        self._on_change()

    def _polling_error(self, slot: Slot, failure: PollingFailure) -> None:
        self._polled(slot)
        log.warning("poll failed: %s", failure.err, extra=_facts(attempt=failure.attempts, again=failure.retriable))
        # Only the first failure in a row is reported: the others would push other events out of the buffer.
        if failure.attempts <= 1:
            self._record(EventName.POLLING_ERROR, _short(failure.err))

    def _task_received(self, received: ReceivedTask) -> None:
        self._received[lease_id(received.task.token)] = _now()
        self._on_change()

    @staticmethod
    def _task_start(request: TaskRequest) -> None:
        log.info("task started", extra={"facts": _task_facts(request)})

    def _task_errored(self, received: ReceivedTask, error: BaseException) -> None:
        self._errors[lease_id(received.task.token)] = error

    def _task_done(self, request: TaskRequest, response: TaskResponse | None) -> None:
        lease = request.lease_id
        seconds = _now() - self._received.pop(lease, _now())
        error = self._errors.pop(lease, None)
        facts = {**_task_facts(request), "seconds": round(seconds, 3)}
        if response is not None and response.result != "failure":
            outcome, line = _OUTCOMES[response.result]
            self._metrics.task_ended(outcome, seconds)
            log.info(line, extra={"facts": facts})
        elif response is not None:
            self._metrics.task_ended("failed", seconds)
            self._log_failure("task failed as", _failure(error, response), facts)
        elif isinstance(error, LeaseLostError) or type(error) is TaskCancelledError:
            self._metrics.task_ended("lost", seconds)
            log.warning("task lost: the service gave up on it (%s)", _short(error), extra={"facts": facts})
        else:
            self._metrics.task_ended("unconcluded", seconds)
            failure = failure_of(error) if error is not None else Failure("an error without a name", "")
            self._log_failure("task left without an answer:", failure, facts)
        if isinstance(error, CancellationRequestedError):
            pass  # what the handler raised then is how it ends its task
        elif isinstance(error, TaskCancelledError):
            self._log_late_error(error.__cause__, facts)
        elif response is not None and response.result == "success":
            self._log_late_error(error, facts)
        self._on_change()

    def _log_failure(self, what: str, failure: Failure, facts: dict[str, object]) -> None:
        says = failure.message and self._failures != "name" and failure.message != failure.name
        trace = failure.traceback if self._failures == "traceback" else ""
        message = f"{failure.name}: {failure.message}" if says else failure.name
        log.warning("%s %s", what, message, extra={"facts": {**facts, "error": failure.name}, "traceback": trace})

    def _log_late_error(self, error: BaseException | None, facts: dict[str, object]) -> None:
        """Log what a handler raised after the end of its task was decided: it changes nothing, and must not be lost."""
        if error is not None and not isinstance(error, SourceError | asyncio.CancelledError):
            self._log_failure("the handler raised after its task had ended:", failure_of(error), facts)


def _failure(error: BaseException | None, response: TaskResponse) -> Failure:
    """Return what a failed task's line says: of an exception, else of the handler's own answer."""
    if error is None or isinstance(error, ResponseAlreadySentError):
        return Failure(response.error or "an error without a name", response.cause)
    return failure_of(error)


def _task_facts(request: TaskRequest) -> dict[str, object]:
    facts: dict[str, object] = {**request.log_keys, "lease": request.lease_id, "task": request.activity}
    facts["slot"] = _slot(request)
    if request.execution:
        facts["execution"] = request.execution
    return facts


def _short(error: BaseException | None) -> str:
    """Return an error's text without anything that a handler may have put into it."""
    if isinstance(error, SourceError):
        return f"{error.code}: {error.message}" if error.message else error.code
    return type(error).__name__ if error is not None else "unknown"


def _slot(request: TaskRequest) -> str:
    return request.worker.worker_name.rpartition(":")[2]


def _facts(**facts: object) -> dict[str, dict[str, object]]:
    return {"facts": facts}


def _now() -> float:
    return asyncio.get_running_loop().time()
