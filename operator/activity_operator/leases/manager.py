"""The leases in the operator's hands: recorded, kept alive, failed when nobody can have them, forgotten when over.

Everything that waits runs in the background, a task a lease; nothing runs while there is no lease. Task heartbeats do
not depend on the API server: they go to the task service, and a lease that could not be recorded yet has them too.
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

#: Seconds between two looks at whether leases still have a pool and an owner, while there are leases.
SWEEP_SECONDS = 2.0
#: Seconds between two listings of the records. A former leader's polls are open for a minute after its term and record
#: what they bring; one that was cut off from the API server records it whenever it is heard again.
LISTING_FIRST_SECONDS = 5.0
LISTING_SECONDS = 30.0
HANDOVER_SECONDS = 120.0
#: Seconds between two task heartbeats of a lease that waits, however slow the pool's own are. After a leader is killed
#: nobody sends any for up to 19 s: until the Lease runs out (17 s at most) and the next leader has read the records.
#: Together they stay below the 30 s of HeartbeatSeconds that the README asks for.
WAITING_HEARTBEAT_SECONDS = 5.0
#: Seconds after which a task that cannot be failed (its role is gone) is left to the service's own time-out.
FAIL_PATIENCE_SECONDS = 900.0
#: Seconds that removals of records still have when the process ends; what is left is found by the next leader.
LAST_TASKS_SECONDS = 2.0
#: Ids of leases that are over, kept so that a late listing does not bring one back.
REMEMBERED_ENDINGS = 4096


#: Seconds for which a process that does not lead keeps a task alive after it was recorded, or after its term, until the
#: leader has listed.
LINGER_SECONDS = 40.0
#: Seconds for which it goes on while the records cannot be listed: with the API server away nobody may lead. Not for
#: ever: one that is cut off alone would keep a task alive whose worker, of the next leader's, is dead.
OUTAGE_SECONDS = 300.0


class KeepAlive:
    """Calls `over` once the next leader has had the time to list the records; `listed` lists them."""

    def __init__(self, listed: Callable[[], Awaitable[object]], over: Callable[[], None]) -> None:
        self._listed = listed
        self._over = over
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Linger from now on."""
        self.stop()
        self._task = asyncio.get_running_loop().create_task(self._wait())

    def stop(self) -> None:
        """Linger no more; `over` is not called."""
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
    """Questions that custody asks, and whom it tells.

    `pool_exists(uid)` and `pod_exists(uid)` answer from a store that has been filled; `now` is Unix seconds;
    `on_change` is called when held or claimed leases changed in number; `emit_event` publishes an Event on the pool;
    `leads` tells right now whether this process holds the Lease: one that was stopped hears later that its term is
    over.
    """

    now: Callable[[], float]
    pool_exists: Callable[[str], bool]
    pod_exists: Callable[[str], bool]
    on_change: Callable[[Key], None] = field(default=lambda _key: None)
    emit_event: Callable[[Key, EmitEvent], None] = field(default=lambda _key, _event: None)
    leads: Callable[[], bool] = field(default=lambda: True)


class LeaseManager:
    """All leases that this process knows of. Starts and owns the background tasks that look after them."""

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
        """Return what is known of a lease."""
        return self._entries.get(lease)

    def of(self, key: Key) -> Iterator[LeaseEntry]:
        """Return the leases of a pool."""
        return (self._entries[lease] for lease in tuple(self._by_pool.get(key, ())))

    def put(self, entry: LeaseEntry) -> None:
        """Replace what is known of a lease that is still held."""
        if entry.lease.id in self._entries:
            self._entries[entry.lease.id] = entry

    def counts(self, key: Key) -> LeaseCounts:
        """Return how many leases of the pool are unrecorded, held, and claimed but not yet shown by their worker."""
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
        """Set a pool's terms; None forgets them. Leases of a pool whose terms are unknown have the defaults."""
        if policy is None:
            self._policies.pop(key, None)
        else:
            self._policies[key] = policy

    def policy(self, key: Key) -> LeasePolicy:
        """Return a pool's terms."""
        return self._policies.get(key, LeasePolicy())

    def receive(self, pool: PoolRef, target: PollTarget, task: LeasedTask) -> None:
        """Take a task that a poll just brought: recorded at once, offered only then, kept alive in any case."""
        lease = TaskLease(lease_id(task.token), pool, target, task.token, task.input, self._deps.now())
        if lease.id in self._entries:
            return
        self._ended.pop(lease.id, None)
        self._add(LeaseEntry(lease, lease.received_at), beat_now=False)
        self._unrecorded[lease.id] = self.spawn(self._record(lease))

    def adopt(self, lease: TaskLease) -> None:
        """Take over a recorded lease of an earlier leader, or one that a former leader's last poll brought.

        One that is over has a record only because a write of it was not answered, or its removal is under way.
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
        """Lead: list what is recorded and look after it. Returns when it is known; tries for ever until then."""
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
        """Lead no more: what waits is recorded and kept alive here until there surely is a next leader for it."""
        self.leading = False
        if self._lister is not None:
            self._lister.cancel()
            self._lister = None
        for entry in [entry for entry in self._entries.values() if not entry.is_unclaimed]:
            self._drop(entry.lease.id)
        self._keep_alive.begin()

    async def close(self, timeout_seconds: float) -> int:
        """Wait until everything is recorded, then stop looking after it. Returns how many leases stay unrecorded."""
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
        """Take note that a lease has an owner now: it sends the task heartbeats once it has heard so."""
        if (entry := self._entries.get(stored.id)) is not None:
            self._entries[stored.id] = replace(entry, lease=stored, owner_since=self._deps.now())
            self._deps.on_change(stored.pool.key)

    def end(self, lease: TaskLease, reason: str = "", message: str = "") -> None:
        """Be done with a lease: forget it, remove its record in the background, and say why if there is a reason."""
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
        """Give up a lease whose owner is gone: only the service's own time-out can bring the task back."""
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
        """Look at every lease once: has it still a pool, an owner, patience?"""
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
        """Run something to its end in the background, whoever stops waiting for it."""
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
        """Find what others recorded since: often at first, then for ever at leisure."""
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
        """Record until it succeeds; a non-leader's is the leader's from here.

        What ended meanwhile is removed again, and after a write that was not answered not recorded at all: a leader may
        have found that record, had its task done and removed it. If it is still there, a leader's listing finds it.
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
        """Send task heartbeats until the lease's owner does, it is over, or the service refuses heartbeats for it."""
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
            # Concluded by its owner, who will say so unless it leaves first.
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
        """Whether a lease is still this process's to fail; one that is not, and is still held, a worker may have."""
        entry = self._entries.get(lease)
        if entry is None or not entry.closing:
            return False
        if not self._deps.leads():
            self._entries[lease] = replace(entry, closing=False)
            return False
        return True

    async def _fail(self, lease: TaskLease, why: Disposition) -> None:
        """Fail a task that no worker will have; give up after a while, then the service's own time-out ends it.

        For want of a worker only while this process leads: the next leader may have found one.
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
