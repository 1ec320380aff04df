"""A task service, a record store and a cluster in memory; operators can be started, and killed at any await."""

import asyncio
from collections import Counter
from dataclasses import replace

from activity_operator.backlog.protocol import Key, PollTarget, SourceProblemError, TaskOverError, TokenRefusedError
from activity_operator.core.decision import EmitEvent
from activity_operator.leases.dependencies import LeaseManagerDeps
from activity_operator.leases.handover import LeaseAnswers, LeaseHandover
from activity_operator.leases.manager import LeaseManager
from activity_operator.leases.model import LeaseOwner, PoolRef, TaskLease
from activity_operator.leases.store import FormerLeaderError, LeaseRecordConflictError, LeaseStoreUnavailableError
from activity_worker.contract import LeasedTask, Report, lease_id
from tests.unit.activity_operator.virtual_time import settle, wall

TARGET = PollTarget("arn:aws:states:us-east-1:123456789012:activity:resize")
POOL = PoolRef("media", "resize", "pool-1")


class Records:
    """Lease records that outlive operators. `down` refuses all calls; the next call at `stop_at` hangs.

    `unanswered` stores new records without answering; `undeletable` refuses only deletions, `unled` refuses them as a
    former leader's. The next `conflicts` claims meet a conflict although the record is unchanged, as behind a webhook.
    While `broken` is set, each new record raises it, after it was stored if `stored_anyway`; `unreadable` makes reading
    one raise.
    """

    def __init__(self) -> None:
        self.kept: dict[str, TaskLease] = {}
        self.calls: Counter[str] = Counter()
        self.down = self.unanswered = self.undeletable = self.unled = False
        self.stop_at = ""
        self.version = 0
        self.conflicts = 0
        self.broken: Exception | None = None
        self.unreadable: Exception | None = None
        self.stored_anyway = False

    async def _moment(self, where: str) -> None:
        await asyncio.sleep(0.01)
        if self.stop_at == where:
            await asyncio.Event().wait()
        if self.down and where.startswith("before"):
            raise LeaseStoreUnavailableError("no answer")

    def _store(self, lease: TaskLease) -> TaskLease:
        self.version += 1
        stored = replace(lease, record_uid=f"record-{lease.id}", record_version=str(self.version))
        self.kept[lease.id] = stored
        return stored

    async def create(self, lease: TaskLease) -> TaskLease:
        self.calls["create"] += 1
        await self._moment("before create")
        if self.broken is not None:
            if self.stored_anyway:
                self._store(lease)
            raise self.broken
        stored = self.kept.get(lease.id) or self._store(lease)
        await self._moment("after create")
        if self.unanswered:
            raise LeaseStoreUnavailableError("no answer")
        return stored

    async def claim(self, lease: TaskLease, owner: LeaseOwner) -> TaskLease:
        self.calls["claim"] += 1
        await self._moment("before claim")
        if self.conflicts:
            self.conflicts -= 1
            raise LeaseRecordConflictError(lease.id)
        if lease.id not in self.kept or self.kept[lease.id].record_version != lease.record_version:
            raise LeaseRecordConflictError(lease.id)
        stored = self._store(replace(lease, owner=owner))
        await self._moment("after claim")
        return stored

    async def read(self, lease_id: str) -> TaskLease | None:
        await self._moment("before read")
        if self.unreadable is not None:
            raise self.unreadable
        return self.kept.get(lease_id)

    async def delete(self, lease: TaskLease) -> None:
        self.calls["delete"] += 1
        await self._moment("before delete")
        if self.unled:
            raise FormerLeaderError
        if self.undeletable:
            raise LeaseStoreUnavailableError("a webhook does not answer")
        self.kept.pop(lease.id, None)
        await self._moment("after delete")

    async def withdraw(self, lease: TaskLease) -> None:
        self.calls["withdraw"] += 1
        if self.kept.get(lease.id) == lease and lease.owner is None:
            self.kept.pop(lease.id)

    async def list(self) -> tuple[TaskLease, ...]:
        self.calls["list"] += 1
        await self._moment("before list")
        return tuple(self.kept.values())


class Service:
    """A task service: it counts heartbeats by token and records failures; its flags make it refuse."""

    def __init__(self) -> None:
        self.beats: dict[str, list[float]] = {}
        self.failed: dict[str, tuple[str, str]] = {}
        self.over: set[str] = set()
        self.refuses_heartbeats = False
        self.odd: Exception | None = None
        self.unreachable = False

    def _answer(self, token: str) -> None:
        if self.odd is not None:
            raise self.odd
        if self.unreachable:
            raise SourceProblemError("BackendUnreachable", "no answer")
        if token in self.over or token in self.failed:
            raise TaskOverError("TaskTimedOut")

    async def poll(self, target: PollTarget) -> LeasedTask | None:
        raise NotImplementedError

    async def heartbeat(self, target: PollTarget, token: str) -> None:
        self.beats.setdefault(token, []).append(wall())
        await asyncio.sleep(0.01)
        self._answer(token)
        if self.refuses_heartbeats:
            raise TokenRefusedError("InvalidToken")

    async def fail(self, target: PollTarget, token: str, error: str, cause: str) -> None:
        await asyncio.sleep(0.01)
        self._answer(token)
        self.failed[token] = (error, cause)


class SharedState:
    """The state that operators share."""

    def __init__(self) -> None:
        self.records = Records()
        self.service = Service()
        self.pools = {POOL.uid}
        self.pods = {"uid-a", "uid-b"}


class Operator:
    """One operator process: manager and handover over the shared state."""

    def __init__(self, shared: SharedState) -> None:
        self.events: list[tuple[Key, EmitEvent]] = []
        self.holds_lease = True
        self.changes: list[Key] = []
        self.tasks_before = asyncio.all_tasks()
        deps = LeaseManagerDeps(
            now=wall,
            pool_exists=lambda uid: uid in shared.pools,
            pod_exists=lambda uid: uid in shared.pods,
            on_change=self.changes.append,
            emit_event=lambda key, event: self.events.append((key, event)),
            leads=lambda: self.holds_lease,
        )
        self.manager = LeaseManager(shared.records, shared.service, deps)
        self.handover = LeaseHandover(self.manager)

    @classmethod
    async def leading(cls, shared: SharedState) -> "Operator":
        operator = cls(shared)
        await operator.manager.begin_term()
        return operator

    def receive(self, token: str, payload: str = "") -> str:
        """Receive a task as from a poll; return the ID of its lease."""
        self.manager.receive(POOL, TARGET, LeasedTask(token, payload or f"input of {token}"))
        return lease_id(token)

    async def hold(self, *tokens: str) -> list[str]:
        """Receive tasks one after the other, and wait until they are recorded; return their lease IDs."""
        ids = []
        for token in tokens:
            ids.append(self.receive(token))
            await asyncio.sleep(0.1)
        return ids

    async def answer(self, report: Report, *, cordoned: bool = False) -> LeaseAnswers:
        """Answer a worker's report."""
        return await self.handover.answer(report, wall(), cordoned=cordoned)

    async def kill(self) -> None:
        """Kill the operator: cancel all its tasks."""
        for task in asyncio.all_tasks() - self.tasks_before - {asyncio.current_task()}:
            task.cancel()
        await settle()

    @property
    def reasons(self) -> list[str]:
        return [event.reason for _, event in self.events]
