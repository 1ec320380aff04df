"""One task in one child, from `run` to `done` or to the child's end, and the calls of its toolkit in between."""

import asyncio
from collections.abc import Callable

from activity_worker.errors import ActivityError, ResponseAlreadySentError, TaskCancelledError
from activity_worker.runtime.cancellation import CANCELLATION_ERRORS, CancelReason
from activity_worker.runtime.toolkit import TaskResponseToolkit
from activity_worker.subprocess import errors
from activity_worker.subprocess.process import ChildProcess
from activity_worker.subprocess.protocol import Message
from activity_worker.task import RetryTerms, TaskRequest

#: Calls of one handler that are answered at a time; a handler that makes more waits for its own.
_CALLS_AT_A_TIME = 16


class HandlerExitedError(ActivityError):
    """The handler's process ended while it ran a task: the message names the signal or the exit code."""

    task_error = "ActivityPool.HandlerExited"
    always_fails = True
    interrupted = True


class TaskNotStartedError(Exception):
    """The child died before it began the task. The handler has not seen the task, so another child can run it."""


class TaskSession:
    """The messages between the supervisor and a child about one task."""

    def __init__(
        self,
        child: ChildProcess,
        number: int,
        request: TaskRequest,
        respond: TaskResponseToolkit,
        *,
        on_measured: Callable[[Message], object] = lambda _: None,
    ) -> None:
        self._on_measured = on_measured
        self._child = child
        self._number = number
        self._request = request
        self._respond = respond
        self._calls: set[asyncio.Task[None]] = set()
        #: Whether the handler has ended. Only the service's answer is missing, so the child need not be killed.
        self.handled = False
        self._over = False
        self._noting: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run the task in the child.

        Raises what the handler raised, `HandlerExitedError`, a `TaskCancelledError`, or `TaskNotStartedError`.
        """
        request = self._request
        order: Message = {"kind": "run", "id": self._number, "token": request.task.token, "input": request.task.input}
        if self._respond.signal.draining:
            order["draining"] = True
        if request.deadline_at is not None:
            order["deadline"] = request.deadline_at
        if request.task.activity is not None:
            order["activity"] = request.task.activity.to_wire()
        self._respond.signal.on_draining(self._draining_changed)
        self._respond.handler_has_started = self._handler_has_started
        await self._child.send(order | {"worker": request.worker.worker_name, "arn": request.worker.activity_arn})
        done = await self._listen()
        self.handled = done is not None
        self._over = True
        if done is not None and "logKeys" in done:
            request.log_keys.update(done["logKeys"])
        # What the handler has asked for is finished even if the child is dead: a conclusion under way must not be lost.
        while self._calls:
            await asyncio.wait(self._calls)
        if done is None and not self._handler_has_started() and not self._respond.signal.must_end:
            raise TaskNotStartedError
        if done is None:
            raise await self._cause_of_death()
        self._respond.handler_ended = True
        if done["error"] is not None:
            self._respond.retry_wanted = done.get("retry")
            raise self._cause_of_failure(done["error"])
        if done["output"] is not None:
            await self._respond.success_encoded(done["output"])

    async def send_cancellation(self) -> None:
        """Send the cancellation of the task, with its reason."""
        signal = self._respond.signal
        reason = signal.reason or CancelReason.WORKER_STOPPED
        await self._child.send({"kind": "cancel", "id": self._number, "reason": reason.value, "detail": signal.detail})

    def _handler_has_started(self) -> bool:
        return self._child.handler_has_started(self._number)

    def _draining_changed(self) -> None:
        if not self._over:
            note = {"kind": "drain", "id": self._number, "on": self._respond.signal.draining}
            self._noting = asyncio.create_task(self._child.send(note))

    async def _listen(self) -> Message | None:
        while (message := await self._child.receive()) is not None:
            match message["kind"]:
                case "call" if message["id"] == self._number:
                    await self._begin(message)
                case "call":
                    # Of code that an earlier task has left behind: that task is over.
                    error = None if message["what"] == "heartbeat" else errors.to_wire(ResponseAlreadySentError())
                    await self._reply(message, error)
                case "retry":
                    self._respond.retry_terms = RetryTerms(*message["terms"])
                case "progress" if message["id"] == self._number:
                    self._respond.heartbeat_soon(message["details"])
                case "measured":
                    self._on_measured(message["note"])
                case "done" if message["id"] == self._number:
                    return message
        return None

    async def _begin(self, message: Message) -> None:
        if len(self._calls) >= _CALLS_AT_A_TIME:
            await asyncio.wait(self._calls, return_when=asyncio.FIRST_COMPLETED)
        call = asyncio.create_task(self._answer(message))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _answer(self, message: Message) -> None:
        error = None
        try:
            match message["what"]:
                case "heartbeat":
                    await self._respond.heartbeat(message["details"])
                case "succeed":
                    await self._respond.success_encoded(message["output"])
                case "confirm_cancellation":
                    await self._respond.confirm_cancellation(message["details"])
                case "fail":
                    await self._respond.failure(message["error"], message["cause"])
        except Exception as raised:  # noqa: BLE001 - the handler receives it
            error = errors.to_wire(raised)
        await self._reply(message, error)

    async def _reply(self, message: Message, error: errors.EncodedError | None) -> None:
        await self._child.send({"kind": "reply", "call": message["call"], "error": error})

    async def _cause_of_death(self) -> ActivityError:
        cancelled = self._cancellation() if self._respond.signal.must_end else None
        return cancelled or HandlerExitedError(str(await self._child.ended()))

    def _cause_of_failure(self, wire: errors.EncodedError) -> ActivityError:
        cancelled = self._cancellation() if wire["type"] == "CancelledError" else None
        return cancelled or errors.from_wire(wire)

    def _cancellation(self) -> TaskCancelledError | None:
        signal = self._respond.signal
        if signal.reason is None:
            return None
        return CANCELLATION_ERRORS[signal.reason](signal.detail or f"the task was cancelled: {signal.reason.value}")
