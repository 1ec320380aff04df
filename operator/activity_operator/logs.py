"""How log lines look: JSON for machines, text for people. Never a payload, a token or a secret."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # In ASCII: no text of a user's can break a line, or hide in one, wherever the log is shown.
        return json.dumps(line)


def set_up(level: str, form: str) -> None:
    """Send the logs of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # Neither says anything at INFO that is not said by us with more sense.
    for noisy in ("aiohttp.access", "kopf._core", "kopf._cogs", "botocore"):
        logging.getLogger(noisy).setLevel(max(logging.getLevelName(level), logging.WARNING))
