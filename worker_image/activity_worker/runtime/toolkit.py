"""With the toolkit a handler answers its task and says that it makes progress."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from activity_worker.contract import EventName
from activity_worker.errors import CancellationNotRequestedError, ResponseAlreadySentError
from activity_worker.events import EventEmitter
from activity_worker.runtime.cancellation import CancellationSignal, CancelReason
from activity_worker.runtime.encoding import (
    MAX_CANCELLATION_DETAILS_BYTES,
    MAX_CAUSE_BYTES,
    check_output,
    encode_output,
    trim,
    trim_error,
)
from activity_worker.task import RetryTerms, TaskRequest, TaskResponse


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a handler's last heartbeat. `details` is for SWF and for listeners; `at` is monotonic seconds."""

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

    async def confirm_cancellation(self, details: str) -> None:
        """Conclude the task as cancelled, trying again where that helps."""
        ...


class TaskResponseToolkit:
    """With it a handler sends task heartbeats and answers, once. `response` is set only after the service took it."""

    #: What a handler's parameter with this annotation gets.
    __activity_role__: ClassVar[str] = "toolkit"
    __slots__ = (
        "_answering",
        "_channel",
        "_request",
        "events",
        "handler_ended",
        "handler_has_started",
        "progress",
        "response",
        "retry_terms",
        "retry_wanted",
        "signal",
    )

    def __init__(
        self, request: TaskRequest, channel: TaskChannel, *, events: EventEmitter, signal: CancellationSignal
    ) -> None:
        self.events = events
        self.signal = signal
        self.response: TaskResponse | None = None
        self.progress: Progress | None = None
        #: Tells whether the handler has begun.
        self.handler_has_started: Callable[[], bool] = _not_yet
        #: Whether the handler has ended, so that its slot can begin the next task at once.
        self.handler_ended = False
        #: The handler's retry policy, and whether it takes what the handler raised; None where there is no policy.
        self.retry_terms: RetryTerms | None = None
        self.retry_wanted: bool | None = None
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
        """Tell the service that the task is being worked on, and keep `details`, which Amazon SWF gets, too.

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

    async def confirm_cancellation(self, details: str = "") -> None:
        """Conclude the task as cancelled, with `details` for the decider, after its cancellation was requested.

        Raises `CancellationNotRequestedError`, `ResponseAlreadySentError` or the source's error.
        """
        if self.signal.reason is not CancelReason.REQUESTED:
            raise CancellationNotRequestedError
        self._begin()
        details = trim(details, MAX_CANCELLATION_DETAILS_BYTES)
        try:
            await self._channel.confirm_cancellation(details)
            self.response = TaskResponse("cancelled", cause=details)
        finally:
            self._answering = False

    def leave_to_others(self) -> None:
        """Record that somebody else, who has the task's token, concludes the task. For the runtime."""
        self.response = TaskResponse("later")

    def _begin(self) -> None:
        if self.response is not None or self._answering:
            raise ResponseAlreadySentError
        self._answering = True


def _not_yet() -> bool:
    return False
