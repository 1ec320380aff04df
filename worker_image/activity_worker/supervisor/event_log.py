"""Turns a pool's events into log lines, metrics and the few events that go to the operator.

A line has the task's lease id, what happened, and how long it took; it never has a token or a payload.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from activity_worker.contract import EventName, lease_id
from activity_worker.errors import LeaseLostError, SourceError, TaskCancelledError, error_name
from activity_worker.events import EventEmitter, PollingFailure, ReceivedTask
from activity_worker.runtime.slot import Slot
from activity_worker.supervisor.metrics import WorkerMetrics
from activity_worker.task import TaskRequest, TaskResponse

#: `record(name, message)`: remember an event for the operator.
Record = Callable[[str, str], None]

log = logging.getLogger(__name__)


class EventRecorder:
    """Listens to `events`. `on_change` is called whenever a report would have other contents."""

    def __init__(
        self, events: EventEmitter, metrics: WorkerMetrics, *, record: Record, on_change: Callable[[], None]
    ) -> None:
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
        log.info("task started", extra=_facts(lease=request.lease_id[:8], slot=_slot(request)))

    def _task_errored(self, received: ReceivedTask, error: BaseException) -> None:
        self._errors[lease_id(received.task.token)] = error

    def _task_done(self, request: TaskRequest, response: TaskResponse | None) -> None:
        lease = request.lease_id
        seconds = _now() - self._received.pop(lease, _now())
        error = self._errors.pop(lease, None)
        facts = _facts(lease=lease[:8], slot=_slot(request), seconds=round(seconds, 3))
        if response is not None and response.result == "success":
            self._metrics.task_ended("succeeded", seconds)
            log.info("task succeeded", extra=facts)
        elif response is not None:
            self._metrics.task_ended("failed", seconds)
            log.warning("task failed as %s", response.error or "an error without a name", extra=facts)
        elif isinstance(error, LeaseLostError) or type(error) is TaskCancelledError:
            self._metrics.task_ended("lost", seconds)
            log.warning("task lost: the service gave up on it (%s)", _short(error), extra=facts)
        else:
            self._metrics.task_ended("unconcluded", seconds)
            why = f": {error_name(error)}" if error is not None else ""
            log.warning("task left without an answer%s", why, extra=facts)
        self._on_change()


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
