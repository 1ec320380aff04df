"""PURE: exceptions that cross the pipe between a supervisor and a handler's process, as plain data.

Errors of this project arrive in their own class. A handler's exceptions arrive as `HandlerRaisedError`, with the name,
the message and the traceback with which they fail the task, because only the child has their classes.
"""

from typing import Any

from activity_worker import errors
from activity_worker.errors import ActivityError, SourceError, TaskFailed
from activity_worker.runtime.failure import Failure, failure_of

EncodedError = dict[str, Any]


class HandlerRaisedError(TaskFailed):
    """A handler in a process of its own raised an exception; `failure` is its description."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.name, failure.message)
        self.failure = failure


def to_wire(error: BaseException) -> EncodedError:
    """Return an exception as plain data."""
    failure = failure_of(error)
    wire: EncodedError = {"type": type(error).__name__, "name": failure.name, "cause": failure.message}
    wire["traceback"] = failure.traceback
    wire["ours"] = type(error) is getattr(errors, type(error).__name__, None)
    wire["message"] = str(error.args[0]) if error.args else ""
    if isinstance(error, SourceError):
        wire.update(code=error.code, message=error.message, fix=error.fix)
    return wire


def from_wire(wire: EncodedError) -> ActivityError:
    """Return the exception that `to_wire` encoded."""
    known = getattr(errors, wire["type"], None) if wire["ours"] else None
    if not isinstance(known, type) or not issubclass(known, ActivityError):
        return HandlerRaisedError(Failure(wire["name"], wire["cause"], wire["traceback"]))
    if issubclass(known, SourceError):
        return known(wire["code"], wire["message"], fix=wire["fix"])
    if issubclass(known, TaskFailed):
        return known(wire["name"], wire["cause"])
    return known(wire["message"])
