"""The context of a task: what a handler can ask and tell about the task that it runs.

A handler gets it as a parameter that is annotated with `Context`. Code further down finds it in a context variable,
which runners set and `activity_worker.activity` reads.
"""

import time
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from activity_worker.runtime.cancellation import CancellationSignal
from activity_worker.task import TaskRequest, TaskResponse

if TYPE_CHECKING:
    from activity_worker.runtime.toolkit import TaskResponseToolkit


_DAY_MILLISECONDS: Final = 86_400_000


class Context:
    """The task that runs, from within its handler. Every method may be called from any thread.

    `request` is the task's request, `signal` its cancellation.
    """

    #: What a handler's parameter with this annotation gets.
    __activity_role__: ClassVar[str] = "context"
    __slots__ = ("_respond", "request", "signal")

    def __init__(self, request: TaskRequest, respond: "TaskResponseToolkit") -> None:
        self.request = request
        self.signal: CancellationSignal = respond.signal
        self._respond = respond

    @property
    def lease(self) -> str:
        """The task's lease id (32 hex characters), by which logs and reports name the task."""
        return self.request.lease_id

    @property
    def worker(self) -> str:
        """The name under which the slot polls."""
        return self.request.worker.worker_name

    @property
    def attempt(self) -> int:
        """The state's attempt, from 1; 1 where the input does not say under `_activity.retries`."""
        return self.request.origin.attempt

    @property
    def execution(self) -> str:
        """The id of the execution that the task belongs to; "" where it is not known."""
        return self.request.execution

    @property
    def execution_name(self) -> str:
        """The execution's name; "" where the input does not say."""
        return self.request.origin.name

    @property
    def state(self) -> str:
        """The state's name; "" where the input does not say."""
        return self.request.origin.state

    @property
    def traceparent(self) -> str:
        """The trace that the task belongs to, as W3C Trace Context writes it; "" where the input does not say."""
        return self.request.origin.traceparent

    @property
    def deadline(self) -> datetime | None:
        """When the runtime ends the handler, in UTC; None: never."""
        at = self.request.deadline_at
        return None if at is None else datetime.fromtimestamp(at, UTC)

    @property
    def log_keys(self) -> dict[str, Any]:
        """Keys that the task's log lines get from now on, also those about its end. Middleware may add some."""
        return self.request.log_keys

    @property
    def response(self) -> TaskResponse | None:
        """The answer that the handler gave with its toolkit and the service took; None before."""
        return self._respond.response

    def remaining_seconds(self) -> float | None:
        """Return the seconds until the deadline, 0 after it; None without a deadline."""
        at = self.request.deadline_at
        return None if at is None else max(at - time.time(), 0.0)

    @property
    def aws_request_id(self) -> str:
        """The lease id, under the name that Lambda's context has for a request."""
        return self.lease

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the deadline, as Lambda's context does; without a deadline those of a day."""
        remaining = self.remaining_seconds()
        return _DAY_MILLISECONDS if remaining is None else int(remaining * 1000)

    def heartbeat(self, details: Any = None) -> None:
        """Say that the task makes progress, without waiting; many calls become few heartbeats."""
        self._respond.heartbeat_soon(details)

    def cancelled(self) -> bool:
        """Tell whether the task should end."""
        return self.signal.cancelled

    def draining(self) -> bool:
        """Tell whether the worker takes no further task. The task may go on, or save its state and end early."""
        return self.signal.draining


_context: ContextVar[Context] = ContextVar("activity")


def enter(context: Context) -> Token[Context]:
    """For runners: make `context` the one that handlers below see, until `leave`."""
    return _context.set(context)


def leave(token: Token[Context]) -> None:
    """For runners: end what `enter` began."""
    _context.reset(token)


def current_context() -> Context:
    """Return the context of the running task; raises `RuntimeError` outside a handler."""
    try:
        return _context.get()
    except LookupError:
        raise RuntimeError("no task runs here: call this from within an activity handler") from None
