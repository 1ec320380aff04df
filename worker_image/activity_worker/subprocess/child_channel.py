"""The child's end of the socket: requests to the supervisor and their answers, tasks and cancellations coming in.

The event loop reads it: a thread that read would have to pass each message to the loop, which takes longer than the
message itself. Any thread may send.
"""

import asyncio
import contextlib
import ctypes
import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from activity_worker.subprocess.protocol import CHILD_ORPHANED, FrameDecoder, FrameError, Message, encode

_PR_SET_PDEATHSIG = 1
_READ_BYTES = 65536
#: How often a child checks that its supervisor lives, on systems whose kernel sends no signal for that.
_LOOK_SECONDS = 2.0


class ChildChannel:
    """Exchanges messages with the supervisor over `fd`; `on_message` gets all but replies, in the event loop."""

    def __init__(self, fd: int, on_message: Callable[[Message], object]) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._sending = threading.Lock()
        self._unsent = bytearray()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._decoder = FrameDecoder()
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Message]] = {}
        self._on_message = on_message

    def start(self) -> None:
        """Begin to read, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._read)

    def send(self, message: Message) -> None:
        """Send one message; raises `FrameError` when it is too large. The process ends if the supervisor is gone."""
        self.send_frame(encode(message))

    def send_frame(self, frame: bytes) -> None:
        """Send a message that is encoded already.

        Bytes for which the socket has no room are kept and sent later. If this call blocked, the loop would not read
        the supervisor's replies, and both sides could wait for each other.
        """
        try:
            with self._sending:
                if self._loop is None:
                    self._socket.sendall(frame)
                    return
                sent = 0 if self._unsent else self._send_now(frame)
                if sent == len(frame):
                    return
                self._unsent += frame[sent:]
            self._loop.call_soon_threadsafe(self._loop.add_writer, self._socket.fileno(), self._send_rest)
        except OSError:
            _end_as_orphan()

    def _send_rest(self) -> None:
        try:
            with self._sending:
                del self._unsent[: self._send_now(self._unsent)]
                if not self._unsent and self._loop is not None:
                    self._loop.remove_writer(self._socket.fileno())
        except OSError:
            _end_as_orphan()

    def _send_now(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return 0

    async def call(self, kind: str, **arguments: object) -> Message:
        """Send a call to the supervisor and return its reply; raises `FrameError`."""
        number = next(self._numbers)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        try:
            self.send({"kind": "call", "call": number, "what": kind, **arguments})
            return await answer
        finally:
            self._calls.pop(number, None)

    def _read(self) -> None:
        try:
            # The socket is a blocking one, for `sendall`; this call reads the bytes that have arrived.
            data = self._socket.recv(_READ_BYTES, socket.MSG_DONTWAIT)
            for message in self._decoder.feed(data):
                self._dispatch(message)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, FrameError):
            _end_as_orphan()
        if not data:
            _end_as_orphan()

    def _dispatch(self, message: Message) -> None:
        if message.get("kind") != "reply":
            self._on_message(message)
            return
        answer = self._calls.get(message["call"])
        if answer is not None and not answer.done():
            answer.set_result(message)


def die_with_parent(parent: int) -> None:
    """End this process together with the supervisor, even while a handler blocks the event loop."""
    if sys.platform.startswith("linux"):
        # The kernel kills this process even while a handler holds the interpreter.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_look_for, args=(parent,), name="supervisor-watch", daemon=True).start()
    # The supervisor may have died before the kernel was asked.
    if os.getppid() != parent:
        _end_as_orphan()


def _look_for(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    _end_as_orphan()


def prefer_for_oom_kill() -> None:
    """Make the kernel kill this process, and not the supervisor, when the container is out of memory."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _end_as_orphan() -> NoReturn:
    os._exit(CHILD_ORPHANED)
