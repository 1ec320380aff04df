"""Removing the records of leases that are over: until it is done, and once for each however often it is asked for."""

import asyncio
import logging

from activity_operator.backlog.backoff import capped
from activity_operator.leases.model import LeaseStore, LeaseStoreUnavailableError, TaskLease

#: Waits between tries: here, and of all else that custody has to try again.
RETRY_FIRST_SECONDS = 0.5
RETRY_CAP_SECONDS = 10.0

log = logging.getLogger(__name__)


class RecordRemovals:
    """Removals by lease. One that is refused is tried again for as long as somebody waits for it."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self._under_way: set[str] = set()

    def under_way(self, lease: str) -> bool:
        """Whether a lease's record is being removed."""
        return lease in self._under_way

    async def remove(self, lease: TaskLease) -> None:
        """Remove a lease's record."""
        failures = 0
        self._under_way.add(lease.id)
        try:
            while True:
                try:
                    return await self._store.delete(lease)
                except LeaseStoreUnavailableError as error:
                    failures += 1
                    log.warning("the record of lease %s cannot be removed yet: %s", lease.id, error)
                await asyncio.sleep(capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))
        finally:
            self._under_way.discard(lease.id)
