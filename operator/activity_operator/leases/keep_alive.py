"""Keeping tasks alive after a term: whoever led goes on with it until there surely is a next leader to do it."""

import asyncio
from collections.abc import Awaitable, Callable

from activity_operator.leases.model import LeaseStoreUnavailableError

#: Seconds for which a process that does not lead keeps a task alive after it was recorded, or after its term, until the
#: leader has listed.
LINGER_SECONDS = 40.0
#: Seconds for which it goes on while the records cannot be listed: with the API server away nobody may lead. Not for
#: ever: one that is cut off alone would keep a task alive whose worker, of the next leader's, is dead.
OUTAGE_SECONDS = 300.0


class KeepAlive:
    """Calls `over` once the next leader has had the time to list the records; `listed` lists them."""

    def __init__(self, listed: Callable[[], Awaitable[object]], over: Callable[[], None]) -> None:
        self._listed = listed
        self._over = over
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Linger from now on."""
        self.stop()
        self._task = asyncio.get_running_loop().create_task(self._wait())

    def stop(self) -> None:
        """Linger no more; `over` is not called."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _wait(self) -> None:
        for _ in range(int(OUTAGE_SECONDS / LINGER_SECONDS)):
            await asyncio.sleep(LINGER_SECONDS)
            try:
                await self._listed()
            except LeaseStoreUnavailableError:
                continue
            break
        self._over()
