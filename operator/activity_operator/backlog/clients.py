"""One client for all pools with the same region, endpoint and role: opened once, outside the event loop."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from activity_operator.backlog import messages
from activity_operator.backlog.protocol import PollTarget, SourceProblemError
from activity_worker.wire.errors import WireError


class Closable(Protocol):
    """A client with connections."""

    async def close(self) -> None:
        """Close the connections."""
        ...


C = TypeVar("C", bound=Closable)


class Clients(Generic[C]):
    """The clients of one service. `open_client(target)` may block; it ignores the target's ARN."""

    def __init__(self, open_client: Callable[[PollTarget], C]) -> None:
        self._open = open_client
        self._opening: dict[PollTarget, asyncio.Task[C]] = {}

    async def get(self, target: PollTarget) -> C:
        """Return the client for the target's place. Raises WireError, or SourceProblemError if opening it fails."""
        where = messages.place_of(target)
        opening = self._opening.get(where)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(asyncio.to_thread(self._open, where))
            self._opening[where] = opening
        try:
            return await asyncio.shield(opening)
        except WireError:
            self._forget(where, opening)
            raise
        except Exception as error:
            self._forget(where, opening)
            raise SourceProblemError(
                "BackendUnreachable", f"no client for {messages.shown_place(target)}: {error}"
            ) from error

    async def close(self) -> None:
        """Await the clients that are being opened, then close all connections."""
        opened = await asyncio.gather(*self._opening.values(), return_exceptions=True)
        self._opening.clear()
        for client in opened:
            if not isinstance(client, BaseException):
                await client.close()

    def _forget(self, where: PollTarget, opening: "asyncio.Task[C]") -> None:
        if self._opening.get(where) is opening:
            del self._opening[where]
