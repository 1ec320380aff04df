"""The context of a task: what a handler can ask and tell about the task that it runs.

A handler gets it as a parameter that is annotated with `Context`. Code further down finds it in a context variable,
which runners set and `activity_worker.activity` reads.
"""

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, ClassVar

from activity_worker.runtime.cancellation import CancellationSignal
from activity_worker.task import TaskRequest

if TYPE_CHECKING:
    from activity_worker.runtime.toolkit import TaskResponseToolkit


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
