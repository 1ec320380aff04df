"""PURE: the description of an exception of a handler: its name, its message, and a traceback of the user's code."""

from dataclasses import dataclass
from typing import Final

from activity_worker.errors import TaskFailed, error_name
from activity_worker.runtime.encoding import MAX_CAUSE_BYTES, trim
from activity_worker.user_traceback import user_traceback

#: How much of the message of an exception goes before its traceback.
_MAX_MESSAGE_BYTES: Final = 8_192
#: The logger of failed tasks in a slot.
FAILURE_LOGGER: Final = "activity_worker.runtime.failure"


@dataclass(frozen=True, slots=True)
class Failure:
    """`name` is the error name of the failed task. `traceback` is empty where none of it is the user's code."""

    name: str
    message: str
    traceback: str = ""

    @property
    def cause(self) -> str:
        """The cause that the service gets: the message, then the traceback, 32,768 bytes at most."""
        return trim(f"{self.message}\n\n{self.traceback}" if self.traceback else self.message, MAX_CAUSE_BYTES)


def failure_of(error: BaseException) -> Failure:
    """Return the description of `error`.

    The traceback begins in the handler's code, also where the exception was raised from another one, which comes first.
    A `TaskFailed` has the handler's own cause as its message and no traceback.
    """
    kept = getattr(error, "failure", None)
    if isinstance(kept, Failure):
        return kept
    if isinstance(error, TaskFailed):
        return Failure(error.error, trim(error.cause, MAX_CAUSE_BYTES))
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot say what it is still fails its task
        message = ""
    return Failure(error_name(error), trim(message or type(error).__name__, _MAX_MESSAGE_BYTES), _traceback(error))


def cause_of(error: BaseException) -> str:
    """Return the cause with which `error` fails its task."""
    return failure_of(error).cause


def _traceback(error: BaseException) -> str:
    try:
        told = user_traceback(error)
        if told is None:
            return ""
        lines, last = list(told.format()), list(told.format_exception_only())
    except Exception:  # noqa: BLE001 - an exception whose parts cannot be shown still fails its task
        return ""
    # The message is there already.
    if last and lines[-len(last) :] == last and told.exceptions is None:
        lines = lines[: -len(last)]
    return trim("".join(lines), MAX_CAUSE_BYTES)
