"""Which task the running code belongs to: a context variable, set by runners and read by `activity_worker.activity`."""

from contextvars import ContextVar, Token
from typing import Any, Protocol

from activity_worker.runtime.cancellation import CancellationSignal
from activity_worker.task import TaskRequest


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


def current_context() -> ActivityContext:
    """Return the context of the running task; raises `RuntimeError` outside a handler."""
    try:
        return _context.get()
    except LookupError:
        raise RuntimeError("no task runs here: call this from within an activity handler") from None
