"""The change of leaders: the next leader lists the records, and the former one sends heartbeats until it has."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from activity_operator.backoff import capped
from activity_operator.leases.model import TaskLease
from activity_operator.leases.store import (
    RETRY_CAP_SECONDS,
    RETRY_FIRST_SECONDS,
    LeaseStore,
    LeaseStoreUnavailableError,
)

#: Seconds between two listings of the records: the short interval for HANDOVER_SECONDS of a term, then the long one. A
#: former leader's polls stay open for a minute after its term, and it records their tasks; a former leader without a
#: connection to the API server records them once it has one.
LISTING_FIRST_SECONDS = 5.0
LISTING_SECONDS = 30.0
HANDOVER_SECONDS = 120.0
#: Seconds for which a former leader still sends task heartbeats after its term, or after it recorded a lease: by then
#: the new leader has listed the records.
LINGER_SECONDS = 40.0
#: Longest time for which it goes on while the records cannot be listed, because without the API server no process may
#: lead. It is limited: if only this process is cut off, it would keep a task alive after its new worker has died.
OUTAGE_SECONDS = 300.0

log = logging.getLogger(__name__)


class RecordListing:
    """Lists the records in a term: once at its begin, and then again, because former leaders record leases later.

    `adopt` is called for each listed lease. `now` returns Unix seconds.
    """

    def __init__(self, store: LeaseStore, adopt: Callable[[TaskLease], None], now: Callable[[], float]) -> None:
        self._store = store
        self._adopt = adopt
        self._now = now
        self._task: asyncio.Task[None] | None = None
        self._wanted = False

    async def begin(self) -> None:
        """Return once the records are listed, or `stop` is called; start the later listings."""
        self._wanted = True
        failures = 0
        while self._wanted:
            if await self._list():
                self._task = self._task or asyncio.get_running_loop().create_task(self._list_again())
                return
            failures += 1
            await asyncio.sleep(capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))

    def stop(self) -> None:
        """List no more."""
        self._wanted = False
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _list(self) -> bool:
        try:
            found = await self._store.list()
        except LeaseStoreUnavailableError as error:
            log.warning("lease records cannot be listed: %s", error)
            return False
        for lease in found:
            self._adopt(lease)
        return True

    async def _list_again(self) -> None:
        """Adopt leases that former leaders record later: list often at first, then at the long interval."""
        began = self._now()
        while True:
            young = self._now() - began < HANDOVER_SECONDS
            await asyncio.sleep(LISTING_FIRST_SECONDS if young else LISTING_SECONDS)
            try:
                await self._list()
            except Exception:
                log.exception("lease records cannot be listed")


class KeepAlive:
    """After a term, waits until the next leader must have listed the records, then calls `over`.

    `listed` lists the records, as a test whether the API server answers.
    """

    def __init__(self, listed: Callable[[], Awaitable[object]], over: Callable[[], None]) -> None:
        self._listed = listed
        self._over = over
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the wait from the beginning."""
        self.stop()
        self._task = asyncio.get_running_loop().create_task(self._wait())

    def stop(self) -> None:
        """Stop the wait without calling `over`."""
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
