"""Handlers for the benchmarks, imported by the worker's child processes."""

from typing import Any

from activity_worker.activity import TaskRequest


async def noop(_: TaskRequest) -> dict[str, Any]:
    """Do nothing; return an empty result."""
    return {}


def hold_the_interpreter(_: TaskRequest) -> None:
    """Compute for ever in C calls, each of which holds the interpreter lock (the GIL) against the other threads.

    A call takes some tenths of a second, as parsing or compressing large data does.
    """
    while True:
        sum(range(20_000_000))
