"""The child's end of the socket: requests to the supervisor and their answers, tasks and cancellations coming in.

A thread reads, so that cancellations and answers arrive while the handler computes; it is also the one that notices
that the supervisor is gone.
"""

import contextlib
import ctypes
import itertools
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from activity_worker.child_protocol import (
    CHILD_ORPHANED,
    HEADER,
    FrameError,
    Message,
    body_length,
    decode,
    encode,
)

_PR_SET_PDEATHSIG = 1


class Link:
    """Speaks with the supervisor over `fd`. `on_message` gets tasks, cancellations and the stop, in a thread."""

    def __init__(self, fd: int, on_message: Callable[[Message], object]) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._calls: dict[int, Future[Message]] = {}
        self._on_message = on_message

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name="supervisor-link", daemon=True).start()

    def send(self, message: Message) -> None:
        """Send one message; raises `FrameError` when it is too large. The process ends if nobody can read it."""
        frame = encode(message)
        try:
            with self._sending:
                self._socket.sendall(frame)
        except OSError:
            _end_as_orphan()

    def call(self, kind: str, **arguments: object) -> Future[Message]:
        """Ask the supervisor for something; the future holds its reply."""
        number = next(self._numbers)
        answer: Future[Message] = Future()
        self._calls[number] = answer
        try:
            self.send({"kind": "call", "call": number, "what": kind, **arguments})
        except FrameError:
            del self._calls[number]
            raise
        return answer

    def _read(self) -> None:
        with contextlib.suppress(OSError, FrameError, EOFError):
            while True:
                self._dispatch(decode(self._exactly(body_length(self._exactly(HEADER.size)))))
        _end_as_orphan()

    def _dispatch(self, message: Message) -> None:
        if message.get("kind") != "reply":
            self._on_message(message)
            return
        answer = self._calls.pop(message["call"], None)
        if answer is not None and not answer.cancelled():
            answer.set_result(message)

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)


def die_with_parent(parent: int) -> None:
    """End this process when the supervisor does, even while a handler holds the interpreter (Linux; else at EOF)."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The supervisor may have died before the kernel was asked.
    if os.getppid() != parent:
        _end_as_orphan()


def be_the_first_to_go() -> None:
    """Tell the kernel to take this process, and not the supervisor, when the container is out of memory."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _end_as_orphan() -> None:
    os._exit(CHILD_ORPHANED)
