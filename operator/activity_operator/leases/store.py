"""Where leases are recorded so that no crash loses one: the protocol, its errors, and removals that are tried again."""

import asyncio
import logging
from typing import Protocol

from activity_operator.backlog.backoff import capped
from activity_operator.leases.model import LeaseOwner, TaskLease


class LeaseStoreUnavailableError(Exception):
    """The API server did not answer, or not usefully: the write may or may not have happened. Try again."""


class LeaseRecordConflictError(Exception):
    """The record is not what it was when it was last read: somebody else wrote or removed it."""


class LeaseStore(Protocol):
    """Where leases are recorded. Every call may raise `LeaseStoreUnavailableError`."""

    async def create(self, lease: TaskLease) -> TaskLease:
        """Record the lease; return it as recorded. One that is recorded already is returned as it is there."""
        ...

    async def claim(self, lease: TaskLease, owner: LeaseOwner) -> TaskLease:
        """Write the owner, on the condition that nothing changed; raises `LeaseRecordConflictError`."""
        ...

    async def read(self, lease_id: str) -> TaskLease | None:
        """Return the lease as it is recorded now, None if it is not."""
        ...

    async def delete(self, lease: TaskLease) -> None:
        """Remove the record; one that is gone is no error."""
        ...

    async def list(self) -> tuple[TaskLease, ...]:
        """Return every recorded lease."""
        ...


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
