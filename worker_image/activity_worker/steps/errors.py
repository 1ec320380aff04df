"""Errors that methods raise on purpose, and how any exception is recorded."""

import json
import traceback
from typing import Any, Final

from activity_worker.steps.instance import ErrorRecord

#: Longest message and stack that are kept, in characters.
MAX_TEXT: Final = 8_000


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
    """Return an exception as it is stored: its class is the code unless it names one; data only if it is JSON."""
    lines = "".join(traceback.format_exception(error))
    data = getattr(error, "data", None)
    return ErrorRecord(
        code=str(getattr(error, "code", None) or type(error).__name__),
        message=str(error)[:MAX_TEXT],
        data=data if _is_json(data) else None,
        stack=lines[-MAX_TEXT:],
        final=isinstance(error, StepError) and error.final,
    )


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
