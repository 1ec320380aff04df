"""Recording of the tasks that polls brought: the record is written before anything else happens with the lease."""

import asyncio
import logging
from dataclasses import replace

from activity_operator.backoff import capped
from activity_operator.leases.background import BackgroundTasks
from activity_operator.leases.dependencies import LeaseManagerDeps
from activity_operator.leases.endings import LeaseEndings
from activity_operator.leases.model import TaskLease
from activity_operator.leases.rules import Disposition
from activity_operator.leases.store import (
    RETRY_CAP_SECONDS,
    RETRY_FIRST_SECONDS,
    LeaseRecordRefusedError,
    LeaseStore,
    LeaseStoreUnavailableError,
    RecordRemovals,
)
from activity_operator.leases.table import LeaseTable
from activity_operator.leases.takeover import LINGER_SECONDS

#: Seconds of tries to record a lease. Meanwhile its task gets heartbeats and no worker can have it.
RECORD_PATIENCE_SECONDS = 900.0

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
        """Record the lease. If this process does not lead, the leader takes it over.

        If the lease ends during the write, its record is removed.
        """
        stored = await self._written(lease)
        self._unrecorded.pop(lease.id, None)
        if stored is None:
            return
        entry = self._table.get(lease.id)
        if entry is None:
            await self._removals.withdraw(stored)
            return
        self._table.put(replace(entry, lease=stored))
        if self._table.leading:
            self._deps.on_change(lease.pool.key)
            return
        await asyncio.sleep(LINGER_SECONDS)
        if not self._table.leading:
            self._endings.forget(lease.id)

    async def _written(self, lease: TaskLease) -> TaskLease | None:
        """Write the record, with retries; return the lease as recorded, None if the lease has ended or is given up.

        If the lease ends after a write without an answer, it is not written again: the leader may have found that
        record and removed it after the task's end. A record that is still there appears in the leader's next listing.
        """
        failures, began = 0, self._deps.now()
        while True:
            try:
                return await self._store.create(lease)
            except LeaseRecordRefusedError as error:
                log.warning("lease %s cannot be recorded, so its task is failed: %s", lease.id, error)
                self._fail(lease)
                return None
            except LeaseStoreUnavailableError as error:
                log.warning("lease %s cannot be recorded yet: %s", lease.id, error)
            except Exception as error:  # noqa: BLE001 - a lease must not wait for ever; the text may name the payload
                log.warning("lease %s cannot be recorded yet: %s", lease.id, type(error).__name__)
            failures += 1
            await asyncio.sleep(capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))
            if lease.id not in self._table:
                return None
            if self._deps.now() - began >= RECORD_PATIENCE_SECONDS:
                return await self._last_try(lease)

    async def _last_try(self, lease: TaskLease) -> TaskLease | None:
        """Return the record if an earlier write succeeded after all; otherwise end the lease.

        Its task is failed if it is certain that no worker has it: this process leads, and there is no record. In doubt
        the heartbeats end, so that the service's own time-out ends the task.
        """
        try:
            stored = await self._store.read(lease.id)
        except Exception as error:  # noqa: BLE001 - as above
            log.warning(
                "lease %s is given up: its record can neither be written nor read: %s", lease.id, type(error).__name__
            )
            self._endings.forget(lease.id)
            return None
        if stored is None and self._table.leading and self._deps.leads():
            self._fail(lease)
        elif stored is None:
            self._endings.forget(lease.id)
        return stored

    def _fail(self, lease: TaskLease) -> None:
        if (entry := self._table.get(lease.id)) is not None:
            self._endings.fail(entry, Disposition.FAIL_NOT_RECORDED)
