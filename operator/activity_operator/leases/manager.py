"""The lease manager: takes leases in, from polls and from former leaders, and keeps them until they end.

Its parts are the table of leases, the recorder, the task heartbeats, the endings, and the listing of records at a
change of leaders. `handover.py` gives leases to workers.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from activity_operator.backlog.protocol import Key, LeaseCounts, LeaseTotals, PollTarget, TaskOverError, TaskService
from activity_operator.leases.background import BackgroundTasks
from activity_operator.leases.dependencies import LeaseManagerDeps
from activity_operator.leases.endings import LeaseEndings
from activity_operator.leases.heartbeats import TaskHeartbeats
from activity_operator.leases.model import PoolRef, TaskLease
from activity_operator.leases.recorder import LeaseRecorder
from activity_operator.leases.rules import LeaseEntry, LeasePolicy
from activity_operator.leases.store import LeaseStore, RecordRemovals
from activity_operator.leases.table import LeaseTable
from activity_operator.leases.takeover import KeepAlive, RecordListing
from activity_worker.contract import LeasedTask, lease_id

T = TypeVar("T")

log = logging.getLogger(__name__)

#: Seconds between two checks whether leases still have a pool and an owner, while there are leases.
LEASE_CHECK_SECONDS = 2.0
#: Seconds that background tasks get when the process ends. The next leader removes the records that are left.
LAST_TASKS_SECONDS = 2.0


class LeaseManager:
    """All leases that this process knows. It starts and owns their background tasks."""

    def __init__(self, store: LeaseStore, service: TaskService, deps: LeaseManagerDeps) -> None:
        self.store = store
        self.table = LeaseTable(deps.now)
        self._deps = deps
        self._background = BackgroundTasks()
        removals = RecordRemovals(store)
        self._heartbeats = TaskHeartbeats(self.table, service, deps.now, self._task_over)
        self.endings = LeaseEndings(self.table, service, deps, self._background, self._heartbeats, removals)
        self._recorder = LeaseRecorder(self.table, store, deps, self._background, self.endings, removals)
        self._listing = RecordListing(store, self.adopt, deps.now)
        self._keep_alive = KeepAlive(store.list, self._forget_recorded)
        self._checks: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def leading(self) -> bool:
        """Whether this process leads."""
        return self.table.leading

    def counts(self, key: Key) -> LeaseCounts:
        """Return how many of the pool's leases are unrecorded, held, and claimed without a report that shows them."""
        return self.table.counts(key)

    def totals(self) -> LeaseTotals:
        """Return how many leases all pools have together."""
        return self.table.totals()

    def set_policy(self, key: Key, policy: LeasePolicy | None) -> None:
        """Set a pool's lease policy; None removes it. A pool without a policy has the defaults."""
        self.table.set_policy(key, policy)

    def check_all(self) -> None:
        """Check every lease: fail it if its pool is gone or `holdSeconds` are over; drop it if its owner is gone."""
        self.endings.check_all()

    def receive(self, pool: PoolRef, target: PollTarget, task: LeasedTask) -> None:
        """Take in a task from a poll: record its lease, offer it once it is recorded, and send its task heartbeats."""
        now = self._deps.now()
        lease = TaskLease(lease_id(task.token), pool, target, task.token, task.input, now, activity=task.activity)
        if lease.id in self.table:
            return
        self.endings.forget_ending(lease.id)
        self._add(LeaseEntry(lease, lease.received_at), beat_now=False)
        self._recorder.record(lease)

    def adopt(self, lease: TaskLease) -> None:
        """Take over a recorded lease of a former leader, also one from a poll that ended after that leader's term."""
        if not self.leading or lease.id in self.table or self.endings.remove_ended(lease):
            return
        now = self._deps.now()
        self._add(LeaseEntry(lease, now, owner_since=now), beat_now=True)
        self._deps.on_change(lease.pool.key)

    def claimed(self, stored: TaskLease) -> None:
        """Store the lease's new owner. The owner sends the task heartbeats once it has its grant."""
        if (entry := self.table.get(stored.id)) is not None:
            self.table.put(replace(entry, lease=stored, owner_since=self._deps.now()))
            self._deps.on_change(stored.pool.key)

    def confirm(self, entry: LeaseEntry) -> None:
        """Note that a report of the owner shows the lease: the owner has its grant and keeps the task alive."""
        self.table.put(replace(entry, confirmed=True))
        self._deps.on_change(entry.lease.pool.key)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` to its end in a background task, even if the caller stops waiting for it."""
        return self._background.spawn(work)

    async def begin_term(self) -> None:
        """Begin to lead: list the records and adopt the leases. Returns once the list is read; retries until then."""
        self._keep_alive.stop()
        self._forget_recorded()
        self.table.leading = True
        await self._listing.begin()

    def end_term(self) -> None:
        """Stop leading. Unclaimed leases stay recorded and get task heartbeats here until the next leader has them."""
        self.table.leading = False
        self._listing.stop()
        self._forget(lambda entry: not entry.is_unclaimed)
        self._keep_alive.begin()

    async def close(self, timeout_seconds: float) -> int:
        """Wait until every lease is recorded, then stop all background tasks. Returns how many stay unrecorded."""
        await self._recorder.wait(timeout_seconds)
        self._keep_alive.stop()
        self._listing.stop()
        await self._background.stop(LAST_TASKS_SECONDS)
        await self._heartbeats.stop_all()
        if self._checks is not None:
            self._checks.cancel()
            await asyncio.gather(self._checks, return_exceptions=True)
        return self._recorder.unrecorded

    def _add(self, entry: LeaseEntry, *, beat_now: bool) -> None:
        self.table.add(entry)
        self._heartbeats.start(entry.lease.id, at_once=beat_now)
        if self._checks is None:
            self._checks = asyncio.get_running_loop().create_task(self._check_while_held())

    def _task_over(self, lease: TaskLease, error: TaskOverError) -> None:
        self.endings.task_over(lease, error)

    def _forget_recorded(self) -> None:
        self._forget(lambda entry: entry.lease.recorded)

    def _forget(self, chosen: Callable[[LeaseEntry], bool]) -> None:
        for entry in self.table.all():
            if chosen(entry):
                self.endings.forget(entry.lease.id)

    async def _check_while_held(self) -> None:
        while len(self.table):
            await asyncio.sleep(LEASE_CHECK_SECONDS)
            if self.leading and self._deps.leads():
                try:
                    self.check_all()
                except Exception:
                    log.exception("the leases cannot be checked now")
        self._checks = None
