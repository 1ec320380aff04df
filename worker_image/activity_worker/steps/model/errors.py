"""Errors that methods raise on purpose, and how any exception is recorded."""

import traceback
from typing import Any, Final

from activity_worker.steps.model.instance import ErrorRecord
from activity_worker.steps.model.storable import as_stored, storable_text
from activity_worker.user_traceback import user_traceback

#: Longest message and stack that are kept, in characters.
MAX_TEXT: Final = 8_000
#: Longest code that is kept, in characters: the longest name of an error in Step Functions.
MAX_CODE: Final = 256


class StepError(Exception):
    """Raise it in a method to fail under a code of your own, with JSON data for the error method."""

    def __init__(self, code: str, message: str = "", data: Any = None, *, final: bool = False) -> None:
        super().__init__(message or code)
        self.code = code
        self.data = data
        self.final = final


class FinalError(StepError):
    """A StepError that is not retried, whatever the step says."""

    def __init__(self, code: str, message: str = "", data: Any = None) -> None:
        super().__init__(code, message, data, final=True)


def record_of(error: BaseException) -> ErrorRecord:
    """Return an exception as it is stored: its class is the code unless it names one; data only if it is JSON.

    The stack begins in the user's code, as the cause of a failed task does. An exception of the runtime's own, such as
    a time-out, has its class and message there.
    """
    told = user_traceback(error)
    lines = "".join(told.format() if told is not None else traceback.format_exception_only(error))
    data = _attribute(error, "data")
    return ErrorRecord(
        code=storable_text(_code(error)[:MAX_CODE]),
        message=storable_text(_message(error)[:MAX_TEXT]),
        data=data if _is_json(data) else None,
        stack=storable_text(lines[-MAX_TEXT:]),
        final=isinstance(error, StepError) and error.final,
    )


def _code(error: BaseException) -> str:
    # The code of a SystemExit is a process's.
    named = None if isinstance(error, SystemExit) else _attribute(error, "code")
    try:
        return str(named) if named else type(error).__name__
    except Exception:  # noqa: BLE001 - an error without a readable code is still an error
        return type(error).__name__


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error without a readable message is still an error
        return f"{type(error).__name__} (what it says could not be read)"


def _attribute(error: BaseException, name: str) -> Any:
    try:
        return getattr(error, name, None)
    except Exception:  # noqa: BLE001 - a property of a user's exception may raise whatever it likes
        return None


def _is_json(value: Any) -> bool:
    try:
        as_stored(value)
    except ValueError:
        return False
    return True
