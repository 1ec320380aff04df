"""The handler of the end-to-end tests: works as long as the input says."""

import time
from typing import Any


def handle(request: Any) -> dict[str, Any]:
    """Sleep for `seconds`, then say who asked."""
    time.sleep(request.input.get("seconds", 0.2))
    return {"task": request.input.get("n")}
