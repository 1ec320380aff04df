"""Recording of the tasks that polls brought: the record is written before anything else happens with the lease."""

import asyncio
import logging
from dataclasses import replace

from activity_operator.backoff import capped
from activity_operator.leases.background import BackgroundTasks
from activity_operator.leases.dependencies import LeaseManagerDeps
from activity_operator.leases.endings import LeaseEndings
from activity_operator.leases.model import TaskLease
from activity_operator.leases.store import (
    RETRY_CAP_SECONDS,
    RETRY_FIRST_SECONDS,
    LeaseStore,
    LeaseStoreUnavailableError,
    RecordRemovals,
)
from activity_operator.leases.table import LeaseTable
from activity_operator.leases.takeover import LINGER_SECONDS

log = logging.getLogger(__name__)


class LeaseRecorder:
    """Records leases in background tasks."""

    def __init__(
        self,
        table: LeaseTable,
        store: LeaseStore,
        deps: LeaseManagerDeps,
        background: BackgroundTasks,
        endings: LeaseEndings,
        removals: RecordRemovals,
    ) -> None:
        self._table = table
        self._store = store
        self._deps = deps
        self._background = background
        self._endings = endings
        self._removals = removals
        self._unrecorded: dict[str, asyncio.Task[None]] = {}

    def record(self, lease: TaskLease) -> None:
        """Record the lease in the background."""
        self._unrecorded[lease.id] = self._background.spawn(self._record(lease))

    @property
    def unrecorded(self) -> int:
        """The number of leases without a record."""
        return len(self._unrecorded)

    async def wait(self, timeout_seconds: float) -> None:
        """Wait until every lease is recorded, for at most `timeout_seconds`."""
        if self._unrecorded:
            await asyncio.wait(self._unrecorded.values(), timeout=timeout_seconds)

    async def _record(self, lease: TaskLease) -> None:
        """Record the lease, with retries until it succeeds. If this process does not lead, the leader takes it over.

        If the lease ends during the write, its record is removed. If it ends after a write without an answer, it is not
        written again: the leader may have found that record and removed it after the task's end. A record that is still
        there appears in the leader's next listing.
        """
        failures = 0
        while True:
            try:
                stored = await self._store.create(lease)
                break
            except LeaseStoreUnavailableError as error:
                failures += 1
                log.warning("lease %s cannot be recorded yet: %s", lease.id, error)
                await asyncio.sleep(capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))
                if lease.id not in self._table:
                    self._unrecorded.pop(lease.id, None)
                    return
        self._unrecorded.pop(lease.id, None)
        entry = self._table.get(lease.id)
        if entry is None:
            await self._removals.remove(stored)
            return
        self._table.put(replace(entry, lease=stored))
        if self._table.leading:
            self._deps.on_change(lease.pool.key)
            return
        await asyncio.sleep(LINGER_SECONDS)
        if not self._table.leading:
            self._endings.forget(lease.id)
