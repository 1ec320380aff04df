"""The store of lease records, which survive a crash: its protocol, its errors, and removals with retries."""

import asyncio
import logging
from typing import Protocol

from activity_operator.backoff import capped
from activity_operator.leases.model import LeaseOwner, TaskLease


class LeaseStoreUnavailableError(Exception):
    """The API server gave no usable answer, so the write may or may not have happened. Try again."""


class LeaseRecordRefusedError(Exception):
    """The API server refuses this record for good, for example because it is too large. Nothing was written."""


class LeaseRecordConflictError(Exception):
    """Another process has changed or removed the record since it was last read."""


class LeaseStore(Protocol):
    """Where leases are recorded. Every call may raise `LeaseStoreUnavailableError`."""

    async def create(self, lease: TaskLease) -> TaskLease:
        """Record the lease and return it as recorded. If a record exists already, return that one.

        Raises `LeaseRecordRefusedError` if no further try can succeed.
        """
        ...

    async def claim(self, lease: TaskLease, owner: LeaseOwner) -> TaskLease:
        """Write the owner if the record is unchanged; raises `LeaseRecordConflictError` if it is not."""
        ...

    async def read(self, lease_id: str) -> TaskLease | None:
        """Return the lease as it is recorded now, None if there is no record."""
        ...

    async def delete(self, lease: TaskLease) -> None:
        """Remove the record. A missing record is no error."""
        ...

    async def list(self) -> tuple[TaskLease, ...]:
        """Return every recorded lease."""
        ...


#: First and longest wait between tries, here and in the lease manager.
RETRY_FIRST_SECONDS = 0.5
RETRY_CAP_SECONDS = 10.0

log = logging.getLogger(__name__)


class RecordRemovals:
    """Removes records of leases. A removal that fails is tried again until it succeeds or its task is cancelled."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self._under_way: set[str] = set()

    def under_way(self, lease: str) -> bool:
        """Whether a lease's record is being removed."""
        return lease in self._under_way

    async def remove(self, lease: TaskLease) -> None:
        """Remove a lease's record, with retries until it succeeds."""
        failures = 0
        self._under_way.add(lease.id)
        try:
            while True:
                try:
                    return await self._store.delete(lease)
                except LeaseStoreUnavailableError as error:
                    failures += 1
                    log.warning("the record of lease %s cannot be removed yet: %s", lease.id, error)
                except Exception as error:  # noqa: BLE001 - the record must not stay for ever; the text may name data
                    failures += 1
                    log.warning("the record of lease %s cannot be removed yet: %s", lease.id, type(error).__name__)
                await asyncio.sleep(capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))
        finally:
            self._under_way.discard(lease.id)
