"""Waking several waiters, none of which may miss a ring that came while it was looking elsewhere."""

import asyncio
import contextlib


class Bell:
    """Rings are counted: who waits says how many it had heard, and goes on at once when there were more."""

    def __init__(self) -> None:
        self.rings = 0
        self._next: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake everybody."""
        self.rings += 1
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self, heard: int, seconds: float) -> None:
        """Return when there was a ring beyond those heard, or after so many seconds."""
        if self.rings > heard:
            return
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._next)
