"""Log lines on standard error: text for a person at a terminal, JSON objects for everything else.

The worker's own records carry their facts in `extra={"facts": {...}}`; no fact is ever a task's payload or token. A
handler's process writes the handler's records, with all of their extras, and adds keys of the task that runs.
"""

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from activity_worker.contract import Env

LOG_FORMATS: Final = ("auto", "text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
#: How much a failed task's line says: name, message and traceback; name and message; the name alone.
LOG_FAILURES: Final = ("traceback", "message", "name")

#: Keys that are the same in each line of a terminal, or too long for it.
_JSON_ONLY: Final = frozenset({"task", "pool", "namespace", "worker", "execution", "error", "trace_id", "span_id"})
#: Attributes that every record has; all others are the caller's extras.
_STANDARD: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "facts", "traceback"})
_encode = json.JSONEncoder(default=str).encode

#: `keys()`: what is added to each line, such as the lease of the task that runs.
Keys = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What a worker logs: the least level of its lines and of its handler's, the format, how much about failures."""

    level: str = "info"
    format: str = "auto"
    failures: str = "traceback"

    def environment(self) -> dict[str, str]:
        """Return the variables with which a handler's process logs in the same way."""
        as_text = _as_text(self.format, sys.stderr)
        log_format = "text" if as_text else "json"
        return {Env.LOG_LEVEL: self.level, Env.LOG_FORMAT: log_format, Env.LOG_FAILURES: self.failures}


class TextFormatter(logging.Formatter):
    """`12:04:31 task started  (slot=a1b2c  lease=0f3e...)`, with the local time."""

    def __init__(self, keys: Keys = dict) -> None:
        super().__init__()
        self._keys = keys

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and a traceback if there is one."""
        when = datetime.fromtimestamp(record.created, tz=UTC).astimezone().strftime("%H:%M:%S")
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        known = {**self._keys(), **_facts(record)}
        shown = _extras(record) | {key: value for key, value in known.items() if key not in _JSON_ONLY}
        if "lease" in shown:
            shown["lease"] = str(shown["lease"])[:8]
        facts = "  ".join(f"{key}={value}" for key, value in shown.items())
        line = f"{when} {level}{record.getMessage()}" + (f"  ({facts})" if facts else "")
        trace = _traceback(self, record)
        return f"{line}\n{trace.rstrip()}" if trace else line


class JsonFormatter(logging.Formatter):
    """One object a line: `time` (RFC 3339, UTC), `level`, `logger`, `message`, the keys, the facts and extras."""

    def __init__(self, keys: Keys = dict) -> None:
        super().__init__()
        self._keys = keys
        self._second, self._written = -1, ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object as text."""
        entry: dict[str, Any] = {
            "time": self._time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # What a caller adds takes no key's place.
        entry = {**_extras(record), **entry, **self._keys(), **_facts(record)}
        trace = _traceback(self, record)
        if trace:
            entry["traceback"] = trace
        return _encode(entry)

    def _time(self, created: float) -> str:
        """Return the time of a line; only its milliseconds are made for each line."""
        second = int(created)
        if second != self._second:
            self._written = datetime.fromtimestamp(second, tz=UTC).isoformat()[:19]
            self._second = second
        return f"{self._written}.{int(created * 1000) % 1000:03d}+00:00"


def set_up_logs(
    log_format: str, stream: TextIO | None = None, *, level: str = "info", keys: Mapping[str, str] | None = None
) -> None:
    """Send this package's records from `level` on, and warnings of others, to `stream` (standard error).

    `auto` is text on a terminal and JSON elsewhere. `keys` are added to each line.
    """
    target = sys.stderr if stream is None else stream
    # Threads, processes and callers are in no line of ours, and looking them up took half of a line's 22 µs (logging's
    # own documentation names these four switches). A no-op task writes two lines.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - the name that the documentation gives
    known = dict(keys or {})
    _handle(target, _as_text(log_format, target), lambda: known, logging.WARNING)
    logging.getLogger("activity_worker").setLevel(level.upper())


def set_up_handler_logs(keys: Keys, environment: Mapping[str, str] = os.environ) -> None:
    """Send every record of this process to standard error, as the variables of `LogSettings.environment` say.

    For a handler's process: the root logger has the level, so that the handler's own loggers need no set-up.
    """
    level = environment.get(Env.LOG_LEVEL, "info")
    log_format = environment.get(Env.LOG_FORMAT, "auto")
    stream = sys.stderr
    _handle(stream, _as_text(log_format, stream), keys, level.upper() if level in LOG_LEVELS else logging.INFO)
    logging.captureWarnings(True)


def _handle(target: TextIO, as_text: bool, keys: Keys, level: int | str) -> None:
    handler = logging.StreamHandler(target)
    handler.setFormatter(TextFormatter(keys) if as_text else JsonFormatter(keys))
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _as_text(log_format: str, target: TextIO) -> bool:
    return log_format == "text" or (log_format == "auto" and target.isatty())


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts = getattr(record, "facts", None)
    return facts if isinstance(facts, dict) else {}


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    attributes = vars(record)
    if attributes.keys() <= _STANDARD:
        return {}
    return {key: value for key, value in attributes.items() if key not in _STANDARD}


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return str(getattr(record, "traceback", "") or "")
