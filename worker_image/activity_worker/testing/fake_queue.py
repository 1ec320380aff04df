"""A queue with long polls, as a fake service keeps it: items and polls, both first come, first served."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from activity_worker.testing.fake_clock import Clock

Item = TypeVar("Item")


class FakeQueue(Generic[Item]):
    """Items that wait for a poll, and polls that wait for an item. `changed` is called when a poll begins or ends."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self.waiting: deque[Item] = deque()
        self._clock = clock
        self._changed = changed
        self._numbers = itertools.count()
        self._polls: dict[int, asyncio.Future[Item | None]] = {}

    @property
    def open_polls(self) -> int:
        """The number of polls that wait."""
        return len(self._polls)

    def put(self, item: Item) -> None:
        """Add an item, and give the oldest one to the oldest open poll."""
        self.waiting.append(item)
        for poll in self._polls.values():
            if not poll.done():
                poll.set_result(self.waiting.popleft())
                break

    def remove(self, item: Item) -> None:
        """Take an item out, if it waits."""
        if item in self.waiting:
            self.waiting.remove(item)

    async def take(self, hold_seconds: float) -> Item | None:
        """Return the oldest item, after `hold_seconds` at most; None if none came."""
        if self.waiting:
            return self.waiting.popleft()
        poll: asyncio.Future[Item | None] = asyncio.get_running_loop().create_future()
        number = next(self._numbers)
        self._polls[number] = poll
        timer = self._clock.call_at(self._clock.now() + hold_seconds, lambda: _answer(poll, None))
        self._changed()
        try:
            return await poll
        finally:
            timer.cancel()
            del self._polls[number]
            self._changed()

    def release(self) -> None:
        """End every open poll empty."""
        for poll in self._polls.values():
            _answer(poll, None)


def _answer(poll: "asyncio.Future[Item | None]", item: Item | None) -> None:
    if not poll.done():
        poll.set_result(item)
