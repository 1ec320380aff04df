"""The format of log lines: JSON for machines, or text for people. No line has a payload, a token or a secret.

A record may carry a mapping `keys` (`extra={"keys": {...}}`) with values for machines, which both formats show.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any


class JsonLines(logging.Formatter):
    """Formats each record as one line with a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line = {**_keys(record), **line}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # ASCII only: no text of a user can break a line, or hide in one, in any viewer.
        return json.dumps(line)


class TextLines(logging.Formatter):
    """Formats each record as text, followed by its keys as `name=value`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, followed by a traceback if it has one."""
        pairs = (f"{name}={json.dumps(value)}" for name, value in _keys(record).items())
        first, *rest = super().format(record).split("\n", 1)
        return "\n".join([" ".join((first, *pairs)), *rest])


def _keys(record: logging.LogRecord) -> dict[str, Any]:
    return dict(getattr(record, "keys", {}))


def set_up(level: str, form: str) -> None:
    """Send this process's logs to stderr. `level` is a level's name, `form` "json" or "text"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # The INFO lines of these loggers repeat the operator's own lines with less context.
    for noisy in ("aiohttp.access", "kopf._core", "kopf._cogs", "botocore"):
        logging.getLogger(noisy).setLevel(max(logging.getLevelName(level), logging.WARNING))
