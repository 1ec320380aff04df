"""The input of tasks whose handler misbehaves in the first attempt only."""

from typing import Any

#: `Parameters` of a task's state: the input fields that `handler.py` knows, and the number of the attempt, from 0, from
#: the context object.
WITH_ATTEMPT: dict[str, Any] = {
    "n.$": "$.n",
    "do.$": "$.do",
    "seconds.$": "$.seconds",
    "attempt.$": "$$.State.RetryCount",
}
