"""What a handler prints, as log records: one for each line, of the logger `stdout` or `stderr`.

Only what Python writes: a program that the handler starts, or a library in C, writes to the container's output itself.
"""

import io
import logging
import sys
import threading
from typing import Any, Final, TextIO

#: A line that has no end yet is logged in parts of this length.
_LONGEST_LINE: Final = 16_384


def capture_printed() -> None:
    """Turn what this process prints from now on into log records. After the set-up of logs, which keeps its stream."""
    sys.stdout = PrintedLines(sys.stdout, "stdout", logging.INFO)
    sys.stderr = PrintedLines(sys.stderr, "stderr", logging.WARNING)
    threading.excepthook = _thread_ended


class PrintedLines(io.TextIOBase):
    """A text stream whose lines become records of `logger`, whatever level the other loggers have."""

    def __init__(self, stream: TextIO, logger: str, level: int) -> None:
        super().__init__()
        self._stream = stream
        self._log = logging.getLogger(logger)
        self._log.setLevel(logging.DEBUG)
        self._level = level
        self._rest = ""
        self._lock = threading.RLock()
        self._emitting = False

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a property here, as the stream's own
        """The stream's encoding."""
        return self._stream.encoding

    @property
    def buffer(self) -> Any:
        """The stream's bytes: what is written there is no record."""
        return self._stream.buffer

    def fileno(self) -> int:
        """Return the stream's descriptor."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Log the lines that `text` completes; keep the rest."""
        with self._lock:
            if self._emitting:
                # Logging itself failed, and says so on standard error.
                return self._stream.write(text)
            *lines, self._rest = (self._rest + text).split("\n")
            if len(self._rest) > _LONGEST_LINE:
                lines, self._rest = [*lines, self._rest], ""
            self._emit(lines)
        return len(text)

    def flush(self) -> None:
        """Flush the stream. A line without an end waits for its end."""
        self._stream.flush()

    def finish(self) -> None:
        """Log a line that has no end."""
        if not self._rest:
            return
        with self._lock:
            lines, self._rest = [self._rest], ""
            self._emit(lines)

    def _emit(self, lines: list[str]) -> None:
        self._emitting = True
        try:
            for line in lines:
                if line.strip():
                    self._log.log(self._level, "%s", line.rstrip("\r"))
        finally:
            self._emitting = False


def finish_lines() -> None:
    """Log lines without an end: their task is over."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, PrintedLines):
            stream.finish()


def _thread_ended(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is not None and not isinstance(ended.exc_value, SystemExit):
        name = ended.thread.name if ended.thread is not None else "a thread"
        raised = (type(ended.exc_value), ended.exc_value, ended.exc_traceback)
        logging.getLogger("threading").error("thread %s ended with an exception", name, exc_info=raised)
