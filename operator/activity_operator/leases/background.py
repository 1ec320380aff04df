"""Background tasks that run to their end, even if their caller stops waiting for them."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class BackgroundTasks:
    """Starts tasks and keeps them until they end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` to its end in a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Forget the task, and log its error, as most callers never await it. The error's text may name a payload."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed: %s", getattr(task.get_coro(), "__qualname__", "a task"), type(error).__name__)

    async def stop(self, timeout_seconds: float) -> None:
        """Wait for the tasks, and cancel those that still run after `timeout_seconds`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_seconds)
        await cancel(self._tasks)


async def cancel(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait until they have ended."""
    left = tuple(tasks)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
