"""What a handler sees: the request, the toolkit to answer with, and what is going on around it.

    async def handler(request): return {"size": len(request.input["text"])}
    async def handler(request, respond): await respond.success({"size": 3})

`info()`, `heartbeat()` and `cancelled()` speak of the task that the calling handler runs, in coroutines and threads.
"""

import json
import time
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from activity_worker.cancellation import CancellationSignal, CancelReason
from activity_worker.contract.names import EventName, lease_id
from activity_worker.encoding import MAX_CAUSE_BYTES, check_output, encode_output, trim, trim_error
from activity_worker.errors import ResponseAlreadySentError
from activity_worker.events import EventEmitter
from activity_worker.sources.protocol import Task

__all__ = [
    "CancelReason",
    "CancellationSignal",
    "Progress",
    "TaskChannel",
    "TaskRequest",
    "TaskResponse",
    "TaskResponseToolkit",
    "WorkerIdentity",
    "cancelled",
    "heartbeat",
    "info",
]


class WorkerIdentity(Protocol):
    """Who runs the task."""

    @property
    def worker_name(self) -> str:
        """The name under which it polls."""
        ...

    @property
    def activity_arn(self) -> str:
        """What it polls."""
        ...


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """What a handler is asked to do. `input` is the parsed JSON, None when it could not be parsed."""

    worker: WorkerIdentity = field(repr=False)
    task: Task
    input: Any = field(repr=False)

    @property
    def lease_id(self) -> str:
        """The task's name for logs and reports: a hash of its token (32 hex characters)."""
        return lease_id(self.task.token)


@dataclass(frozen=True, slots=True)
class TaskResponse:
    """What the service was told. `output_text` is JSON; `error` and `cause` are as sent, trimmed to its limits."""

    result: Literal["success", "failure"]
    output_text: str = field(default="null", repr=False)
    error: str = ""
    cause: str = field(default="", repr=False)

    @property
    def output(self) -> Any:
        """The output as the service saw it; None for a failure."""
        return json.loads(self.output_text)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a handler last said with a heartbeat. `details` stay in this process; `at` is monotonic seconds."""

    count: int
    at: float
    details: Any = field(default=None, repr=False)


class TaskChannel(Protocol):
    """How a toolkit reaches the task's source: directly, or over a pipe from a handler's own process."""

    async def heartbeat(self) -> None:
        """Send a task heartbeat and emit `task:heartbeat` when it is accepted. Raises `LeaseLostError`."""
        ...

    def heartbeat_soon(self) -> None:
        """Have a heartbeat sent without waiting for it. From any thread."""
        ...

    async def succeed(self, output: str) -> None:
        """Conclude with JSON text, trying again where that helps."""
        ...

    async def fail(self, error: str, cause: str) -> None:
        """Conclude with a failure, trying again where that helps."""
        ...


class TaskResponseToolkit:
    """With it a handler sends task heartbeats and answers, once. `response` is set only after the service took it."""

    __slots__ = ("_answering", "_channel", "_request", "events", "progress", "response", "signal")

    def __init__(
        self, request: TaskRequest, channel: TaskChannel, *, events: EventEmitter, signal: CancellationSignal
    ) -> None:
        self.events = events
        self.signal = signal
        self.response: TaskResponse | None = None
        self.progress: Progress | None = None
        self._request = request
        self._channel = channel
        self._answering = False

    @property
    def answering(self) -> bool:
        """Whether an answer is on its way to the service."""
        return self._answering

    def record_progress(self, details: Any = None) -> None:
        """Keep `details`; None keeps the last ones and counts."""
        before = self.progress
        if before is None:
            self.progress = Progress(1, time.monotonic(), details)
        else:
            kept = before.details if details is None else details
            self.progress = Progress(before.count + 1, time.monotonic(), kept)

    async def heartbeat(self, details: Any = None) -> None:
        """Tell the service that the task is being worked on; `details` are kept here, it has no field for them.

        Allowed after a response. When the task is no longer ours a coroutine is cancelled here, and a thread gets
        `LeaseLostError`; other trouble is retried in the background.
        """
        self.record_progress(details)
        await self._channel.heartbeat()

    def heartbeat_soon(self, details: Any = None) -> None:
        """Like `heartbeat`, without waiting: from any thread, as often as you like."""
        self.record_progress(details)
        self._channel.heartbeat_soon()

    async def success(self, output: Any = None) -> None:
        """Conclude the task with `output`.

        Raises `ResponseAlreadySentError`, `OutputNotJsonError`, `OutputTooLargeError`, or the source's error.
        """
        await self.success_encoded(encode_output(output))

    async def success_encoded(self, output_text: str) -> None:
        """Conclude the task with an output that is JSON text already; raises as `success` does."""
        self._begin()
        try:
            await self._channel.succeed(check_output(output_text))
            self.response = response = TaskResponse("success", output_text)
        finally:
            self._answering = False
        self.events.emit(EventName.TASK_SUCCESS, self._request, response)

    async def failure(self, error: str = "", cause: str = "") -> None:
        """Conclude the task with a failure; what is longer than the service takes is trimmed, and says so.

        Raises `ResponseAlreadySentError` or the source's error.
        """
        self._begin()
        error, cause = trim_error(error), trim(cause, MAX_CAUSE_BYTES)
        try:
            await self._channel.fail(error, cause)
            self.response = response = TaskResponse("failure", error=error, cause=cause)
        finally:
            self._answering = False
        self.events.emit(EventName.TASK_FAILURE, self._request, response)

    def _begin(self) -> None:
        if self.response is not None or self._answering:
            raise ResponseAlreadySentError
        self._answering = True


class ActivityContext(Protocol):
    """What the functions below speak to."""

    @property
    def request(self) -> TaskRequest:
        """The task that runs."""
        ...

    @property
    def signal(self) -> CancellationSignal:
        """Its cancellation."""
        ...

    def heartbeat_soon(self, details: Any = None) -> None:
        """Send a task heartbeat without waiting for it."""
        ...


_context: ContextVar[ActivityContext] = ContextVar("activity")


def enter(context: ActivityContext) -> Token[ActivityContext]:
    """For runners: make `context` the one that handlers below see, until `leave`."""
    return _context.set(context)


def leave(token: Token[ActivityContext]) -> None:
    """For runners: end what `enter` began."""
    _context.reset(token)


def _current() -> ActivityContext:
    try:
        return _context.get()
    except LookupError:
        raise RuntimeError("no task runs here: call this from within an activity handler") from None


def info() -> TaskRequest:
    """Return the request of the task that runs here; raises `RuntimeError` outside a handler."""
    return _current().request


def heartbeat(details: Any = None) -> None:
    """Say that the task makes progress, without waiting; many calls become few heartbeats."""
    _current().heartbeat_soon(details)


def cancelled() -> bool:
    """Tell whether the task that runs here should end."""
    return _current().signal.cancelled
