"""The messages between the supervisor and a child: JSON objects, each after its length in four bytes.

JSON instead of pickle, so that a child's message cannot run code in the supervisor. Standard library only, because
every child imports this module.

    supervisor -> child   run {id, token, input, worker, arn, draining?, activity?, deadline?}
                          cancel {id, reason, detail}
                          drain {id, on}   reply {call, error}   stop {}
    child -> supervisor   ready {capabilities?, activities?}   unusable {message}   retry {terms}
                          call {call, id, what, ...}   progress {id, details}   measured {note}
                          done {id, error, output, retry?, logKeys?}

`id` is the task's. What the code of an earlier task still sends does not concern the present one.

`activity` is what a task of Amazon SWF or of a taskbroker says about itself; `deadline` is in Unix seconds.
`capabilities` lists what a handler that is a `Tasks` object can run. `measured` describes each of its calls. `drain`
tells whether the worker takes no further task, and asks a `Tasks` object to begin no further call.

`activities` lists name and version of each activity in a registry.

`logKeys` are keys for the supervisor's lines about the end of the task, such as the ids of its span.

`retry` has the attempts, the delay and the `on_deadline` of the retry policy of a handler that has one, before the
handler begins, and `done` whether the policy takes what the handler raised. That a handler has begun is no message:
`start_flag`.

`output` is a handler's return value as JSON text, None for a handler that has answered by a call. A handler that
returns its output thus costs one message less in each direction.
"""

import json
import struct
from collections.abc import Iterator
from typing import Any, Final

Message = dict[str, Any]

#: Above every limit of a task service, so that an output that is too large gets the service's error, not a broken pipe.
MAX_FRAME_BYTES: Final = 32 * 1024 * 1024
HEADER: Final = struct.Struct(">I")

#: Exit codes of a child that ends on purpose.
CHILD_UNUSABLE: Final = 3
CHILD_ORPHANED: Final = 4


class FrameError(ValueError):
    """A message is larger than `MAX_FRAME_BYTES` or is not a JSON object."""


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_decode = json.JSONDecoder().decode


def encode(message: Message) -> bytes:
    """Return one message as bytes with its length; raises `FrameError`."""
    body = _encode(message).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"a message of {len(body)} bytes: the limit is {MAX_FRAME_BYTES}")
    return HEADER.pack(len(body)) + body


class FrameDecoder:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that `data` completes; raises `FrameError` at the first malformed one."""
        rest = self._rest
        rest += data
        while len(rest) >= HEADER.size:
            (length,) = HEADER.unpack_from(rest)
            if length > MAX_FRAME_BYTES:
                raise FrameError(f"a message of {length} bytes: the limit is {MAX_FRAME_BYTES}")
            end = HEADER.size + length
            if len(rest) < end:
                return
            body = rest[HEADER.size : end]
            del rest[:end]
            yield decode(body)


def decode(body: bytes | bytearray) -> Message:
    """Return the message in `body`; raises `FrameError`."""
    try:
        message = _decode(body.decode())
    except ValueError as error:
        raise FrameError("a message that is not JSON") from error
    if not isinstance(message, dict):
        raise FrameError("a message that is not a JSON object")
    return message
