"""The lease manager: it records leases, sends their task heartbeats, fails unclaimed ones and forgets ended ones.

Each lease has one background task for its heartbeats; without leases only a leader's listing runs. Task heartbeats go
to the task service and do not need the API server, so a lease that is not recorded yet gets them as well.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from activity_operator.backlog.backoff import capped
from activity_operator.backlog.protocol import (
    Key,
    LeaseCounts,
    PollTarget,
    SourceProblemError,
    TaskOverError,
    TaskService,
    TokenRefusedError,
)
from activity_operator.core.decision import EmitEvent
from activity_operator.leases.model import PoolRef, TaskLease
from activity_operator.leases.rules import (
    CAUSES,
    Disposition,
    LeaseEntry,
    LeasePolicy,
    disposition_of,
    is_kept_alive,
    with_pool_presence,
)
from activity_operator.leases.store import (
    RETRY_CAP_SECONDS,
    RETRY_FIRST_SECONDS,
    LeaseStore,
    LeaseStoreUnavailableError,
    RecordRemovals,
)
from activity_worker.contract import LeasedTask, lease_id

T = TypeVar("T")

log = logging.getLogger(__name__)

#: Seconds between two checks whether leases still have a pool and an owner, while there are leases.
SWEEP_SECONDS = 2.0
#: Seconds between two listings of the records: the short interval for HANDOVER_SECONDS of a term, then the long one. A
#: former leader's polls stay open for a minute after its term, and it records their tasks; a former leader without a
#: connection to the API server records them once it has one.
LISTING_FIRST_SECONDS = 5.0
LISTING_SECONDS = 30.0
HANDOVER_SECONDS = 120.0
#: Most seconds between two task heartbeats of an unclaimed lease, also if the pool's own interval is longer. After a
#: leader is killed, heartbeats pause for up to 19 s: the Lease expires (17 s at most), and the next leader reads the
#: records. Both together stay below the 30 s of HeartbeatSeconds that docs/limits.md asks for.
WAITING_HEARTBEAT_SECONDS = 5.0
#: Seconds of tries to fail a task (its role may be gone); after that the service's own time-out ends the task.
FAIL_PATIENCE_SECONDS = 900.0
#: Seconds that background tasks get when the process ends. The next leader removes the records that are left.
LAST_TASKS_SECONDS = 2.0
#: Number of ids of ended leases to remember, so that a late listing does not bring one back.
REMEMBERED_ENDINGS = 4096


#: Seconds for which a former leader still sends task heartbeats after its term, or after it recorded a lease: by then
#: the new leader has listed the records.
LINGER_SECONDS = 40.0
#: Longest time for which it goes on while the records cannot be listed, because without the API server no process may
#: lead. It is limited: if only this process is cut off, it would keep a task alive after its new worker has died.
OUTAGE_SECONDS = 300.0


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


@dataclass(frozen=True, slots=True)
class LeaseManagerDeps:
    """The functions that the lease manager depends on.

    `pool_exists(uid)` and `pod_exists(uid)` answer from a filled store. `now` returns Unix seconds. `on_change` is
    called when the number of held or claimed leases has changed. `emit_event` publishes an Event on the pool. `leads`
    returns whether this process holds the Lease at this moment: a suspended process gets the end of its term later.
    """

    now: Callable[[], float]
    pool_exists: Callable[[str], bool]
    pod_exists: Callable[[str], bool]
    on_change: Callable[[Key], None] = field(default=lambda _key: None)
    emit_event: Callable[[Key, EmitEvent], None] = field(default=lambda _key, _event: None)
    leads: Callable[[], bool] = field(default=lambda: True)


class LeaseManager:
    """All leases that this process knows. It starts and owns their background tasks."""

    def __init__(self, store: LeaseStore, service: TaskService, deps: LeaseManagerDeps) -> None:
        self.store = store
        self.leading = False
        self._service = service
        self._deps = deps
        self._entries: dict[str, LeaseEntry] = {}
        self._by_pool: dict[Key, dict[str, None]] = {}
        self._policies: dict[Key, LeasePolicy] = {}
        self._beats: dict[str, asyncio.Task[None]] = {}
        self._background_tasks: set[asyncio.Task[Any]] = set()
        self._unrecorded: dict[str, asyncio.Task[None]] = {}
        self._checker: asyncio.Task[None] | None = None
        self._lister: asyncio.Task[None] | None = None
        self._keep_alive = KeepAlive(store.list, self._drop_recorded)
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._removals = RecordRemovals(store)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, lease: str) -> LeaseEntry | None:
        """Return the entry of a lease, None if the lease is not held."""
        return self._entries.get(lease)

    def of(self, key: Key) -> Iterator[LeaseEntry]:
        """Return the entries of a pool's leases."""
        return (self._entries[lease] for lease in tuple(self._by_pool.get(key, ())))

    def put(self, entry: LeaseEntry) -> None:
        """Replace the entry of a lease; a lease that is no longer held is left out."""
        if entry.lease.id in self._entries:
            self._entries[entry.lease.id] = entry

    def counts(self, key: Key) -> LeaseCounts:
        """Return how many of the pool's leases are unrecorded, held, and claimed without a report that shows them."""
        unrecorded = held = claimed = 0
        for entry in self.of(key):
            if entry.lease.owner is not None:
                claimed += not entry.confirmed
            elif entry.lease.recorded:
                held += not entry.closing
            else:
                unrecorded += 1
        return LeaseCounts(unrecorded=unrecorded, held=held, claimed=claimed)

    def set_policy(self, key: Key, policy: LeasePolicy | None) -> None:
        """Set a pool's lease policy; None removes it. A pool without a policy has the defaults."""
        if policy is None:
            self._policies.pop(key, None)
        else:
            self._policies[key] = policy

    def policy(self, key: Key) -> LeasePolicy:
        """Return a pool's lease policy."""
        return self._policies.get(key, LeasePolicy())

    def receive(self, pool: PoolRef, target: PollTarget, task: LeasedTask) -> None:
        """Take in a task from a poll: record its lease, offer it once it is recorded, and send its task heartbeats."""
        lease = TaskLease(lease_id(task.token), pool, target, task.token, task.input, self._deps.now())
        if lease.id in self._entries:
            return
        self._ended.pop(lease.id, None)
        self._add(LeaseEntry(lease, lease.received_at), beat_now=False)
        self._unrecorded[lease.id] = self.spawn(self._record(lease))

    def adopt(self, lease: TaskLease) -> None:
        """Take over a recorded lease of a former leader, also one that its last poll brought after its term.

        A lease that has ended here still has a record if its write got no answer or its removal is under way.
        """
        if not self.leading or lease.id in self._entries:
            return
        if lease.id in self._ended:
            if not self._removals.under_way(lease.id):
                self.spawn(self._removals.remove(lease))
            return
        now = self._deps.now()
        self._add(LeaseEntry(lease, now, owner_since=now), beat_now=True)
        self._deps.on_change(lease.pool.key)

    async def begin_term(self) -> None:
        """Begin to lead: list the records and adopt the leases. Returns once the list is read; retries until then."""
        self._keep_alive.stop()
        self._drop_recorded()
        self.leading = True
        failures = 0
        while self.leading:
            try:
                found = await self.store.list()
            except LeaseStoreUnavailableError as error:
                failures += 1
                log.warning("lease records cannot be listed: %s", error)
                await asyncio.sleep(capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))
            else:
                for lease in found:
                    self.adopt(lease)
                self._lister = self._lister or asyncio.get_running_loop().create_task(self._list_again())
                return

    def end_term(self) -> None:
        """Stop leading. Unclaimed leases stay recorded and get task heartbeats here until a next leader has them."""
        self.leading = False
        if self._lister is not None:
            self._lister.cancel()
            self._lister = None
        for entry in [entry for entry in self._entries.values() if not entry.is_unclaimed]:
            self._drop(entry.lease.id)
        self._keep_alive.begin()

    async def close(self, timeout_seconds: float) -> int:
        """Wait until every lease is recorded, then stop all background tasks. Returns how many stay unrecorded."""
        if self._unrecorded:
            await asyncio.wait(self._unrecorded.values(), timeout=timeout_seconds)
        if self._background_tasks:
            await asyncio.wait(self._background_tasks, timeout=LAST_TASKS_SECONDS)
        self._keep_alive.stop()
        left = len(self._unrecorded)
        rounds = [task for task in (self._checker, self._lister) if task is not None]
        tasks = [*self._beats.values(), *self._background_tasks, *rounds]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return left

    def claimed(self, stored: TaskLease) -> None:
        """Store the lease's new owner. The owner sends the task heartbeats once it has its grant."""
        if (entry := self._entries.get(stored.id)) is not None:
            self._entries[stored.id] = replace(entry, lease=stored, owner_since=self._deps.now())
            self._deps.on_change(stored.pool.key)

    def end(self, lease: TaskLease, reason: str = "", message: str = "") -> None:
        """End a lease: forget it, remove its record in the background, and publish an Event if there is a reason."""
        if self._drop(lease.id):
            self._ended[lease.id] = None
            if len(self._ended) > REMEMBERED_ENDINGS:
                self._ended.popitem(last=False)
            self._deps.on_change(lease.pool.key)
        if reason:
            self._deps.emit_event(lease.pool.key, EmitEvent("Warning", reason, message))
        if lease.recorded:
            self.spawn(self._removals.remove(lease))

    def owner_gone(self, lease: TaskLease) -> None:
        """Give up a lease whose owner is gone. Only the service's own time-out can bring its task back."""
        if (entry := self._entries.get(lease.id)) is not None and entry.task_over:
            self.end(lease)
            return
        self.end(
            lease,
            "LeaseOwnerGone",
            "a worker that held a task is gone; the task comes back when the service's own time-out passes, "
            "if the state machine retries it",
        )

    def check_all(self) -> None:
        """Check every lease once: fail it if its pool is gone or `holdSeconds` are over, drop it if its owner is."""
        now = self._deps.now()
        for before in tuple(self._entries.values()):
            entry = self._entries[before.lease.id] = with_pool_presence(
                before, now, self._deps.pool_exists(before.lease.pool.uid)
            )
            lease = entry.lease
            what = disposition_of(
                entry,
                self.policy(lease.pool.key),
                now,
                owner_exists=lease.owner is None or self._deps.pod_exists(lease.owner.pod_uid),
            )
            if what is Disposition.OWNER_GONE:
                self.owner_gone(lease)
            elif what is not Disposition.KEEP:
                self._entries[lease.id] = replace(entry, closing=True)
                self._deps.on_change(lease.pool.key)
                self.spawn(self._fail(lease, what))

    def _add(self, entry: LeaseEntry, *, beat_now: bool) -> None:
        lease = entry.lease
        self._entries[lease.id] = entry
        self._by_pool.setdefault(lease.pool.key, {})[lease.id] = None
        self._beats[lease.id] = asyncio.get_running_loop().create_task(self._beat(lease, beat_now))
        if self._checker is None:
            self._checker = asyncio.get_running_loop().create_task(self._check_while_held())

    def _drop_recorded(self) -> None:
        for entry in [entry for entry in self._entries.values() if entry.lease.recorded]:
            self._drop(entry.lease.id)

    def _drop(self, lease: str) -> bool:
        entry = self._entries.pop(lease, None)
        if entry is None:
            return False
        key = entry.lease.pool.key
        del self._by_pool[key][lease]
        if not self._by_pool[key]:
            del self._by_pool[key]
        self._stop_beating(lease)
        return True

    def _stop_beating(self, lease: str) -> None:
        task = self._beats.pop(lease, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` to its end in a background task, even if the caller stops waiting for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)
        return task

    async def _check_while_held(self) -> None:
        while self._entries:
            await asyncio.sleep(SWEEP_SECONDS)
            if self.leading and self._deps.leads():
                self.check_all()
        self._checker = None

    async def _list_again(self) -> None:
        """Adopt leases that former leaders record later: list often at first, then at the long interval."""
        began = self._deps.now()
        while True:
            young = self._deps.now() - began < HANDOVER_SECONDS
            await asyncio.sleep(LISTING_FIRST_SECONDS if young else LISTING_SECONDS)
            try:
                found = await self.store.list()
            except LeaseStoreUnavailableError as error:
                log.warning("lease records cannot be listed: %s", error)
                continue
            for lease in found:
                self.adopt(lease)

    async def _record(self, lease: TaskLease) -> None:
        """Record the lease, with retries until it succeeds. If this process does not lead, the leader takes it over.

        If the lease ends during the write, its record is removed. If it ends after a write without an answer, it is not
        written again: the leader may have found that record and removed it after the task's end. A record that is still
        there appears in the leader's next listing.
        """
        failures = 0
        while True:
            try:
                stored = await self.store.create(lease)
                break
            except LeaseStoreUnavailableError as error:
                failures += 1
                log.warning("lease %s cannot be recorded yet: %s", lease.id, error)
                await asyncio.sleep(capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))
                if lease.id not in self._entries:
                    self._unrecorded.pop(lease.id, None)
                    return
        self._unrecorded.pop(lease.id, None)
        entry = self._entries.get(lease.id)
        if entry is None:
            await self._removals.remove(stored)
            return
        self._entries[lease.id] = replace(entry, lease=stored)
        if self.leading:
            self._deps.on_change(lease.pool.key)
            return
        await asyncio.sleep(LINGER_SECONDS)
        if not self.leading:
            self._drop(lease.id)

    async def _beat(self, lease: TaskLease, beat_now: bool) -> None:
        """Send task heartbeats until the owner sends them, the task is over, or the service refuses the token."""
        wait, failures = 0.0 if beat_now else self._until_next_beat(lease), 0
        while True:
            await asyncio.sleep(wait)
            if not is_kept_alive(self._entries.get(lease.id), self._deps.now()):
                return
            wait = self._until_next_beat(lease)
            try:
                await self._service.heartbeat(lease.target, lease.token)
                failures = 0
            except TaskOverError as error:
                self._expired(lease, error)
                return
            except TokenRefusedError:
                entry = self._entries.get(lease.id)
                if entry is not None:
                    self._entries[lease.id] = replace(entry, heartbeat_accepted=False)
                return
            except SourceProblemError as error:
                failures += 1
                log.warning("lease %s: no task heartbeat: %s", lease.id, error.reason)
                wait = min(wait, capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))

    def _until_next_beat(self, lease: TaskLease) -> float:
        return min(self.policy(lease.pool.key).heartbeat_seconds, WAITING_HEARTBEAT_SECONDS)

    def _expired(self, lease: TaskLease, error: TaskOverError) -> None:
        if not self.leading:
            self._drop(lease.id)
            return
        entry = self._entries.get(lease.id)
        if entry is not None and entry.lease.owner is not None:
            # The owner has concluded the task and releases the lease in a report, unless its pod ends first.
            self._entries[lease.id] = replace(entry, task_over=True)
            return
        held_for = max(self._deps.now() - lease.received_at, 0.0)
        self.end(
            lease if entry is None else entry.lease,
            "LeaseExpired",
            f"a task that waited {held_for:.0f} s for a worker is over ({error}); it comes back if the state machine "
            "retries it: give its TimeoutSeconds and HeartbeatSeconds room for a worker to start",
        )

    def _may_fail(self, lease: str) -> bool:
        """Whether this process may still fail the lease. If it no longer leads, workers may claim the lease again."""
        entry = self._entries.get(lease)
        if entry is None or not entry.closing:
            return False
        if not self._deps.leads():
            self._entries[lease] = replace(entry, closing=False)
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
                failures += 1
                if self._deps.now() >= deadline:
                    outcome = f"a waiting task could not be failed with {error}: {problem.message}"
                    break
                await asyncio.sleep(capped(failures, RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS))
        entry = self._entries.get(lease.id)
        if entry is not None:
            self.end(entry.lease, "LeaseFailed", outcome)
