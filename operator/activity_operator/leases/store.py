"""The store of lease records, which survive a crash: its protocol, its errors, and removals with retries."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from activity_operator.backoff import capped
from activity_operator.leases.model import LeaseOwner, TaskLease


class LeaseStoreUnavailableError(Exception):
    """The API server gave no usable answer, so the write may or may not have happened. Try again."""


class FormerLeaderError(LeaseStoreUnavailableError):
    """This process leads no more, so nothing was sent. The next leader lists the record."""


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
        """Write the owner if the record is unchanged; raises `LeaseRecordConflictError` if it is not.

        Raises `FormerLeaderError` if this process leads no more.
        """
        ...

    async def read(self, lease_id: str) -> TaskLease | None:
        """Return the lease as it is recorded now, None if there is no record."""
        ...

    async def delete(self, lease: TaskLease) -> None:
        """Remove the record. A missing record is no error. Raises `FormerLeaderError` if this process leads no more."""
        ...

    async def withdraw(self, lease: TaskLease) -> None:
        """Remove a record that this process has created, unless it has an owner or was written again since.

        A process that does not lead may do so, too.
        """
        ...

    async def list(self) -> tuple[TaskLease, ...]:
        """Return every recorded lease."""
        ...


#: First and longest wait between tries, here and in the lease manager.
RETRY_FIRST_SECONDS = 0.5
RETRY_CAP_SECONDS = 10.0

log = logging.getLogger(__name__)


class RecordRemovals:
    """Removes records of leases. A removal that fails is tried again until it succeeds or its task is cancelled.

    A former leader gives it up: the next leader lists the record, and its first heartbeat tells that the task is over.
    """

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self._under_way: set[str] = set()

    def under_way(self, lease: str) -> bool:
        """Whether a lease's record is being removed."""
        return lease in self._under_way

    async def remove(self, lease: TaskLease) -> None:
        """Remove a lease's record, with retries until it succeeds or this process leads no more."""
        await self._until_done(lease, lambda: self._store.delete(lease))

    async def withdraw(self, lease: TaskLease) -> None:
        """Remove a record that this process has created for a lease that has ended meanwhile, with retries."""
        await self._until_done(lease, lambda: self._store.withdraw(lease))

    async def _until_done(self, lease: TaskLease, remove: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        self._under_way.add(lease.id)
        try:
            while True:
                try:
                    return await remove()
                except FormerLeaderError:
                    log.info("the record of lease %s is left to the next leader", lease.id)
                    return None
                except LeaseStoreUnavailableError as error:
                    failures += 1
                    log.warning("the record of lease %s cannot be removed yet: %s", lease.id, error)
                except Exception as error:  # noqa: BLE001 - the record must not stay for ever; the text may name data
                    failures += 1
                    log.warning("the record of lease %s cannot be removed yet: %s", lease.id, type(error).__name__)
                await asyncio.sleep(capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))
        finally:
            self._under_way.discard(lease.id)
