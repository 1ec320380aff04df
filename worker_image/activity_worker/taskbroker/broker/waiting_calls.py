"""Calls that wait at the broker until a task is pending: in a line for each choice of tasks, first come, first served.

Only the first call of a line looks into the store: when tasks were added or moved here, and now and then for those of
other brokers and processes. A call that leaves the line wakes the next one.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sized
from typing import Final, TypeVar

from activity_worker.taskbroker.store.statements import TaskFilter

#: What a look into the store finds.
Found = TypeVar("Found", bound=Sized)
#: The longest wait of a call, in seconds.
MAX_WAIT_SECONDS: Final = 30.0
#: The most calls that wait; a further one is answered at once.
MAX_WAITING: Final = 1000
#: Seconds between two looks for tasks that another process has added.
LOOK_SECONDS: Final = 0.25


class WaitingCalls:
    """The lines of one broker. Use it in one event loop."""

    def __init__(self, look_seconds: float = LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._lines: dict[TaskFilter, deque[asyncio.Event]] = {}
        self._closed = False

    @property
    def number(self) -> int:
        """How many calls wait."""
        return sum(map(len, self._lines.values()))

    async def first(self, wanted: TaskFilter, seconds: float, take: Callable[[], Awaitable[Found]]) -> Found:
        """Return what `take` finds, as soon as it finds something; what it found last after `seconds`.

        `take` is called when it is the call's turn, at least once.
        """
        if seconds <= 0 or self._closed or self.number >= MAX_WAITING:
            return await take()
        loop = asyncio.get_running_loop()
        until = loop.time() + min(seconds, MAX_WAIT_SECONDS)
        woken = asyncio.Event()
        line = self._lines.setdefault(wanted, deque())
        line.append(woken)
        # The first one looks for all: a task may be there that this broker was not told about.
        line[0].set()
        try:
            while True:
                left = until - loop.time()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(max(left, 0.0), self._look_seconds)):
                        await woken.wait()
                over = self._closed or loop.time() >= until
                if line[0] is woken or over:
                    woken.clear()
                    found = await take()
                    if found or over:
                        return found
        finally:
            self._leave(wanted, line, woken)

    def added(self, queues: Collection[tuple[str, str]]) -> None:
        """Wake those who may want new tasks of these applications and namespaces."""
        for wanted, line in self._lines.items():
            if any(wanted.wants(application, namespace) for application, namespace in queues):
                line[0].set()

    def wake(self) -> None:
        """Let the first call of each line look into the store."""
        for line in self._lines.values():
            line[0].set()

    def close(self) -> None:
        """Let no call wait any longer."""
        self._closed = True
        for line in self._lines.values():
            for woken in line:
                woken.set()

    def _leave(self, wanted: TaskFilter, line: deque[asyncio.Event], woken: asyncio.Event) -> None:
        line.remove(woken)
        if line:
            line[0].set()
        else:
            del self._lines[wanted]
