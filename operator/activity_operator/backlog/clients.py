"""One client for all pools with the same region, endpoint and role: opened when it is needed, closed when it is idle.

A pool may change its region, endpoint or role at any time, so a client without calls is closed after a while, and only
the most recently used ones wait for that. A client with a call is never closed: an aborted poll can lose a task.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from activity_operator.backlog import messages
from activity_operator.backlog.protocol import PollTarget, SourceProblemError
from activity_worker.wire.errors import WireError

#: Seconds without a call after which a client is closed: longer than the pauses between the reads of metrics.
IDLE_SECONDS = 300.0
#: The most clients without a call. Each takes about 50 KB, and 50 KB more for each connection that it keeps.
MOST_IDLE = 100


class Closable(Protocol):
    """A client with connections."""

    async def close(self) -> None:
        """Close the connections."""
        ...


C = TypeVar("C", bound=Closable)


@dataclass(slots=True)
class _Entry(Generic[C]):
    """A client, the number of its calls, and the timer that closes it while it has none."""

    opening: "asyncio.Task[C]"
    calls: int = 0
    timer: asyncio.TimerHandle | None = None


class Clients(Generic[C]):
    """The clients of one service. `open_client(target)` may block; it ignores the target's ARN."""

    def __init__(
        self,
        open_client: Callable[[PollTarget], C],
        *,
        idle_seconds: float = IDLE_SECONDS,
        most_idle: int = MOST_IDLE,
    ) -> None:
        self._open_client = open_client
        self._idle_seconds = idle_seconds
        self._most_idle = most_idle
        self._entries: dict[PollTarget, _Entry[C]] = {}
        #: The places of clients without a call; the least recently used one is first.
        self._idle: OrderedDict[PollTarget, None] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self, target: PollTarget) -> AsyncIterator[C]:
        """Give the client for the target's place; it stays open inside the block.

        Raises WireError, or SourceProblemError if opening it fails.
        """
        where = messages.place_of(target)
        entry = self._entries.get(where)
        if entry is None:
            opening = asyncio.get_running_loop().create_task(asyncio.to_thread(self._open_client, where))
            entry = self._entries[where] = _Entry(opening)
        self._begin_call(where, entry)
        try:
            yield await self._opened(target, where, entry)
        finally:
            self._end_call(where, entry)

    async def close(self) -> None:
        """Await the clients that are being opened, then close all connections."""
        for where in tuple(self._entries):
            self._close(where)
        while self._closing:
            await asyncio.gather(*self._closing)

    async def _opened(self, target: PollTarget, where: PollTarget, entry: _Entry[C]) -> C:
        try:
            return await asyncio.shield(entry.opening)
        except WireError:
            self._forget(where, entry)
            raise
        except Exception as error:
            self._forget(where, entry)
            place = messages.shown_place(target)
            raise SourceProblemError("BackendUnreachable", f"no client for {place}: {error}") from error

    def _begin_call(self, where: PollTarget, entry: _Entry[C]) -> None:
        entry.calls += 1
        self._idle.pop(where, None)
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None

    def _end_call(self, where: PollTarget, entry: _Entry[C]) -> None:
        entry.calls -= 1
        if entry.calls or self._entries.get(where) is not entry:
            return
        entry.timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._close, where)
        self._idle[where] = None
        if len(self._idle) > self._most_idle:
            self._close(next(iter(self._idle)))

    def _close(self, where: PollTarget) -> None:
        entry = self._entries[where]
        self._forget(where, entry)
        closing = asyncio.get_running_loop().create_task(_close_opened(entry.opening))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _forget(self, where: PollTarget, entry: _Entry[C]) -> None:
        if self._entries.get(where) is entry:
            del self._entries[where]
            self._idle.pop(where, None)
            if entry.timer is not None:
                entry.timer.cancel()


async def _close_opened(opening: "asyncio.Task[C]") -> None:
    """Close the client once it is open; nothing is left to close if opening it failed."""
    (client,) = await asyncio.gather(opening, return_exceptions=True)
    if not isinstance(client, BaseException):
        await client.close()
