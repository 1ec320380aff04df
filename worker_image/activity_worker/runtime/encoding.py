"""PURE: JSON in and out, and the lengths that Step Functions takes.

Limits are the API model's: SendTaskSuccess output 262,144 bytes, SendTaskFailure error 256 and cause 32,768 characters.
Bytes of UTF-8 are counted throughout, which is right for either reading.
"""

import json
from typing import Any, Final, NoReturn

from activity_worker.contract import LeasedTask
from activity_worker.errors import InvalidTaskInputError, OutputNotJsonError, OutputTooLargeError
from activity_worker.handlers.outputs import plain, plain_keys

MAX_OUTPUT_BYTES: Final = 262_144
MAX_ERROR_BYTES: Final = 256
MAX_CAUSE_BYTES: Final = 32_768
#: Of Amazon SWF's RecordActivityTaskHeartbeat, in characters there; and of RespondActivityTaskCanceled.
MAX_HEARTBEAT_DETAILS_BYTES: Final = 2_048
MAX_CANCELLATION_DETAILS_BYTES: Final = 32_768


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain).encode
_decode = json.JSONDecoder(parse_constant=_refuse).decode


def parse_input(text: str) -> Any:
    """Return the value of a task's input; raises `InvalidTaskInputError`."""
    try:
        return _decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidTaskInputError from error


def parse_task_input(task: LeasedTask) -> Any:
    """Return the value of a leased task's input; raises `InvalidTaskInputError` where the input has to be JSON.

    The input of an SWF task is any text: JSON gives its value, another text is the value itself, and no input is None.
    """
    if task.activity is None or task.activity.namespace:
        return parse_input(task.input)
    if not task.input:
        return None
    try:
        return parse_input(task.input)
    except InvalidTaskInputError:
        return task.input


def encode_details(details: Any) -> str:
    """Return a handler's progress as the text of a heartbeat: a string as it is, None as nothing, the rest as JSON."""
    if details is None:
        return ""
    if isinstance(details, str):
        return details
    try:
        return _encode(details)
    except (TypeError, ValueError, RecursionError):
        return str(details)


def encode_output(value: Any) -> str:
    """Return the output as JSON text; raises `OutputNotJsonError` or `OutputTooLargeError`."""
    try:
        try:
            text = _encode(value)
        except TypeError:
            # A key that is no text, perhaps: the encoder has no hook for keys.
            text = _encode(plain_keys(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise OutputNotJsonError(f"the output of type {type(value).__name__} is not JSON: {error}") from None
    return check_output(text)


def check_output(text: str) -> str:
    """Return `text` if the service takes an output of its length; raises `OutputTooLargeError`."""
    if len(text) * 4 > MAX_OUTPUT_BYTES:
        try:
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError as error:
            raise _lone_surrogate() from error
        if size > MAX_OUTPUT_BYTES:
            raise OutputTooLargeError(
                f"the output has {size} bytes, the limit is {MAX_OUTPUT_BYTES}: store it elsewhere and return where"
            )
    elif not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _lone_surrogate() from error
    return text


def _lone_surrogate() -> OutputNotJsonError:
    return OutputNotJsonError("the output has half a surrogate pair in a string, which UTF-8 cannot carry")


def trim(text: str, limit_bytes: int) -> str:
    """Return `text` in at most `limit_bytes` of UTF-8; a longer text loses its middle, and a mark says so."""
    data = text.encode(errors="replace")
    if len(data) <= limit_bytes:
        return text if text.isascii() else data.decode()
    mark = f" ... [{len(data)} bytes, trimmed] ... ".encode()
    room = max(limit_bytes - len(mark), 0)
    head = room // 2
    cut = data[:head] + mark + data[len(data) - (room - head) :]
    return cut[:limit_bytes].decode(errors="ignore")


def trim_error(name: str) -> str:
    """Return an error name that the service takes: its beginning, 256 bytes at most."""
    return name.encode(errors="replace")[:MAX_ERROR_BYTES].decode(errors="ignore")
