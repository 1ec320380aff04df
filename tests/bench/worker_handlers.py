"""Handlers for the benchmarks, imported by the worker's child processes."""

from typing import Any

from activity_worker.activity import TaskRequest


async def noop(_: TaskRequest) -> dict[str, Any]:
    """Do nothing, and say so."""
    return {}


def hold_the_interpreter(_: TaskRequest) -> None:
    """Compute for ever in C calls, each of which keeps the interpreter (the GIL) from all other threads of its process.

    A call takes some tenths of a second, as parsing or compressing something large does.
    """
    while True:
        sum(range(20_000_000))
