"""Log lines on standard error: text for a person at a terminal, JSON objects for everything else.

Records carry their facts in `extra={"facts": {...}}`; no fact is ever a task's payload or token.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

_encode = json.JSONEncoder(default=str).encode


class TextFormatter(logging.Formatter):
    """`12:04:31 task started  slot=a1b2c lease=0f3e...`, with the local time."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and a traceback if there is one."""
        when = datetime.fromtimestamp(record.created, tz=UTC).astimezone().strftime("%H:%M:%S")
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        facts = "  ".join(f"{key}={value}" for key, value in _facts(record).items())
        line = f"{when} {level}{record.getMessage()}" + (f"  ({facts})" if facts else "")
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class JsonFormatter(logging.Formatter):
    """One object a line: `time` (RFC 3339, UTC), `level`, `logger`, `message`, and the record's facts."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object as text."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return _encode(entry)


def set_up_logs(log_format: str, stream: TextIO | None = None) -> None:
    """Send this package's records, and warnings of others, to `stream` (standard error).

    `auto` is text on a terminal and JSON elsewhere.
    """
    target = sys.stderr if stream is None else stream
    # Threads, processes and callers are in no line of ours, and looking them up took half of a line's 22 µs (logging's
    # own documentation names these four switches). A no-op task writes two lines.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - the name that the documentation gives
    as_text = log_format == "text" or (log_format == "auto" and target.isatty())
    handler = logging.StreamHandler(target)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("activity_worker").setLevel(logging.INFO)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts = getattr(record, "facts", None)
    return facts if isinstance(facts, dict) else {}
