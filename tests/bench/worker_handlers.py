"""Handlers for the benchmarks, imported by the worker's child processes."""

from typing import Any

from activity_worker.activity import TaskRequest


async def noop(_: TaskRequest) -> dict[str, Any]:
    """Do nothing, and say so."""
    return {}
