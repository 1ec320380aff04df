"""What a supervisor and a handler's process say to each other: JSON objects, each after its length in four bytes.

JSON and not pickle, so that nothing a handler's process writes can run code in the supervisor. Standard library only
and quick to import, because every child pays for it.

    supervisor -> child   run {id, token, input, worker, arn}   cancel {id, reason, detail}   reply {call, error}   stop
    {} child -> supervisor   ready {}   unusable {message}   started {}   call {call, what, ...}   progress {details}
    done {id, error}
"""

import json
import struct
from typing import Any, Final

Message = dict[str, Any]

#: Above every limit of a task service, so that an output that is too large is refused by name and not by a broken pipe.
MAX_FRAME_BYTES: Final = 32 * 1024 * 1024
HEADER: Final = struct.Struct(">I")

#: Exit codes of a child that ends on purpose.
CHILD_UNUSABLE: Final = 3
CHILD_ORPHANED: Final = 4


class FrameError(ValueError):
    """A message is larger than `MAX_FRAME_BYTES` or is not a JSON object."""


def encode(message: Message) -> bytes:
    """Return one message as it travels; raises `FrameError`."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"a message of {len(body)} bytes: the limit is {MAX_FRAME_BYTES}")
    return HEADER.pack(len(body)) + body


def body_length(header: bytes) -> int:
    """Return how many bytes follow `header`; raises `FrameError`."""
    (length,) = HEADER.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise FrameError(f"a message of {length} bytes: the limit is {MAX_FRAME_BYTES}")
    return int(length)


def decode(body: bytes) -> Message:
    """Return the message in `body`; raises `FrameError`."""
    try:
        message = json.loads(body)
    except ValueError as error:
        raise FrameError("a message that is not JSON") from error
    if not isinstance(message, dict):
        raise FrameError("a message that is not a JSON object")
    return message
