"""State machines that tell the handler which attempt this is, so that it misbehaves in the first one only."""

from typing import Any

#: `Parameters` of a task: input fields that `handler.py` knows, and the attempt, from the context object (0 the first).
TELLING_ATTEMPTS: dict[str, Any] = {
    "n.$": "$.n",
    "do.$": "$.do",
    "seconds.$": "$.seconds",
    "attempt.$": "$$.State.RetryCount",
}
