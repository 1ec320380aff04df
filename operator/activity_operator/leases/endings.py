"""The end of a lease: its task is concluded, over or failed, or its owner is gone."""

import asyncio
from collections import OrderedDict
from dataclasses import replace

from activity_operator.backlog.protocol import SourceProblemError, TaskOverError, TaskService, TokenRefusedError
from activity_operator.backoff import capped
from activity_operator.core.decision import EmitEvent
from activity_operator.leases.background import BackgroundTasks
from activity_operator.leases.dependencies import LeaseManagerDeps
from activity_operator.leases.heartbeats import TaskHeartbeats
from activity_operator.leases.model import TaskLease
from activity_operator.leases.rules import CAUSES, Disposition, LeaseEntry, disposition_of, with_pool_presence
from activity_operator.leases.store import RETRY_CAP_SECONDS, RETRY_FIRST_SECONDS, RecordRemovals
from activity_operator.leases.table import LeaseTable

#: Seconds of tries to fail a task (its role may be gone); after that the service's own time-out ends the task.
FAIL_PATIENCE_SECONDS = 900.0
#: Number of ids of ended leases to remember, so that a late listing does not bring one back.
REMEMBERED_ENDINGS = 4096


class LeaseEndings:
    """Ends leases: it forgets them, removes their records, publishes Events, and fails tasks that no worker takes."""

    def __init__(
        self,
        table: LeaseTable,
        service: TaskService,
        deps: LeaseManagerDeps,
        background: BackgroundTasks,
        heartbeats: TaskHeartbeats,
        removals: RecordRemovals,
    ) -> None:
        self._table = table
        self._service = service
        self._deps = deps
        self._background = background
        self._heartbeats = heartbeats
        self._removals = removals
        self._ended: OrderedDict[str, None] = OrderedDict()

    def forget_ending(self, lease: str) -> None:
        """Forget that a lease with this id has ended: a poll has brought its task again."""
        self._ended.pop(lease, None)

    def remove_ended(self, stored: TaskLease) -> bool:
        """Remove a listed record if its lease has ended here; return whether it has.

        Such a record is there if its write got no answer, or if its removal is under way.
        """
        if stored.id not in self._ended:
            return False
        if not self._removals.under_way(stored.id):
            self._background.spawn(self._removals.remove(stored))
        return True

    def forget(self, lease: str) -> None:
        """Drop a lease from memory and keep its record."""
        if self._table.drop(lease):
            self._heartbeats.stop(lease)

    def end(self, lease: TaskLease, reason: str = "", message: str = "") -> None:
        """End a lease: forget it, remove its record in the background, and publish an Event if there is a reason."""
        entry = self._table.get(lease.id)
        if entry is not None:
            self.forget(lease.id)
            if entry.lease.recorded:
                self._table.add_history(entry.lease)
            self._ended[lease.id] = None
            if len(self._ended) > REMEMBERED_ENDINGS:
                self._ended.popitem(last=False)
            self._deps.on_change(lease.pool.key)
        if reason:
            self._deps.emit_event(lease.pool.key, EmitEvent("Warning", reason, message))
        if lease.recorded:
            self._background.spawn(self._removals.remove(lease))

    def owner_gone(self, lease: TaskLease) -> None:
        """Give up a lease whose owner is gone. Only the service's own time-out can bring its task back."""
        if (entry := self._table.get(lease.id)) is not None and entry.task_over:
            self.end(lease)
            return
        self.end(
            lease,
            "LeaseOwnerGone",
            "a worker that held a task is gone; the task comes back when the service's own time-out passes, "
            "if the state machine retries it",
        )

    def task_over(self, lease: TaskLease, error: TaskOverError) -> None:
        """End a lease whose heartbeat was answered with the task's end."""
        if not self._table.leading:
            self.forget(lease.id)
            return
        entry = self._table.get(lease.id)
        if entry is not None and entry.lease.owner is not None:
            # The owner has concluded the task and releases the lease in a report, unless its pod ends first.
            self._table.put(replace(entry, task_over=True))
            return
        held_for = max(self._deps.now() - lease.received_at, 0.0)
        self.end(
            lease if entry is None else entry.lease,
            "LeaseExpired",
            f"a task that waited {held_for:.0f} s for a worker is over ({error}); it comes back if the state machine "
            "retries it: give its TimeoutSeconds and HeartbeatSeconds room for a worker to start",
        )

    def check_all(self) -> None:
        """Check every lease once: fail it if its pool is gone or `holdSeconds` are over, drop it if its owner is."""
        now = self._deps.now()
        for before in self._table.all():
            entry = with_pool_presence(before, now, self._deps.pool_exists(before.lease.pool.uid))
            if entry is not before:
                self._table.put(entry)
            lease = entry.lease
            what = disposition_of(
                entry,
                self._table.policy(lease.pool.key),
                now,
                owner_exists=lease.owner is None or self._deps.pod_exists(lease.owner.pod_uid),
            )
            if what is Disposition.OWNER_GONE:
                self.owner_gone(lease)
            elif what is not Disposition.KEEP:
                self.fail(entry, what)

    def fail(self, entry: LeaseEntry, why: Disposition) -> None:
        """Fail the task of a lease without an owner, in the background; from now on no worker can claim it."""
        self._table.put(replace(entry, closing=True))
        self._deps.on_change(entry.lease.pool.key)
        self._background.spawn(self._fail(entry.lease, why))

    def _may_fail(self, lease: str) -> bool:
        """Whether this process may still fail the lease. If it no longer leads, workers may claim the lease again."""
        entry = self._table.get(lease)
        if entry is None or not entry.closing:
            return False
        if not self._deps.leads():
            self._table.put(replace(entry, closing=False))
            return False
        return True

    async def _fail(self, lease: TaskLease, why: Disposition) -> None:
        """Fail the task of an unclaimed lease; after FAIL_PATIENCE_SECONDS leave it to the service's own time-out.

        A task without a worker is failed only while this process leads: the next leader may have found a worker.
        """
        error, cause = CAUSES[why]
        deadline, failures = self._deps.now() + FAIL_PATIENCE_SECONDS, 0
        outcome = f"a waiting task was failed with {error}"
        while True:
            if why is Disposition.FAIL_NO_WORKER and not self._may_fail(lease.id):
                return
            try:
                name = f"{lease.pool.namespace}/{lease.pool.name}"
                await self._service.fail(lease.target, lease.token, error, cause.format(pool=name))
                break
            except (TaskOverError, TokenRefusedError) as over:
                outcome = f"a waiting task should have been failed with {error}, but was over already ({over})"
                break
            except SourceProblemError as problem:
                trouble = problem.message
            except Exception as odd:  # noqa: BLE001 - the task must not be kept alive for ever; the text may name data
                trouble = f"unexpected {type(odd).__name__}"
            failures += 1
            if self._deps.now() >= deadline:
                outcome = f"a waiting task could not be failed with {error}: {trouble}"
                break
            await asyncio.sleep(capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))
        entry = self._table.get(lease.id)
        if entry is not None:
            self.end(entry.lease, "LeaseFailed", outcome)
