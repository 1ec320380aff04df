"""Handlers for worker processes."""

from typing import Any

from activity_worker.activity import TaskRequest


def in_stock(request: TaskRequest) -> dict[str, Any]:
    return {"done": True, "left": 3, "echo": request.input["item"]}
