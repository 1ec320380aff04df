"""Leases that the operator hands over: slots are reserved for claims, and granted tasks are run in them.

A slot is free for a moment after an empty poll and after a task; before the first poll, when the operator may hold the
very task that the worker was started for, all are. Only free slots are reserved, and a slot that waits in vain polls
again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from activity_worker.contract import ERROR_WORKER_STOPPED, EventName, Grant, HeldLease, LeasedTask, lease_id
from activity_worker.errors import LeaseLostError, SourceError
from activity_worker.runtime.heartbeat import HeartbeatListener, HeartbeatLoop
from activity_worker.runtime.slot import Slot, SlotTakenError
from activity_worker.runtime.slot_pool import SlotPool
from activity_worker.supervisor.claims import CLAIM_PATIENCE_SECONDS, ClaimBook
from activity_worker.task import TaskRequest, TaskResponse

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _WaitingLease:
    """A granted lease until a slot runs it; `since` is the event loop's time at which it was taken."""

    task: LeasedTask
    since: float
    heartbeat: HeartbeatLoop


class GrantedLeases:
    """Fills a pool's free slots with what the operator offers. `on_change` is called when a report has news."""

    def __init__(
        self, pool: SlotPool, claims: ClaimBook, *, heartbeat_seconds: float, on_change: Callable[[], None]
    ) -> None:
        self._pool = pool
        self._claims = claims
        self._heartbeat_seconds = heartbeat_seconds
        self._on_change = on_change
        self._reserved: list[Slot] = []
        self._waiting: dict[str, _WaitingLease] = {}
        #: Those whose slot is found and does not know of them yet: a report in between must tell of them, too.
        self._begun: dict[str, _WaitingLease] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._cordoned = False
        pool.events.on(EventName.POLLING_SUCCESS, self._polled)
        # Once answered the pool tells of a task no more, though its handler may go on for long.
        pool.events.on(EventName.TASK_SUCCESS, self._answered)
        pool.events.on(EventName.TASK_FAILURE, self._answered)
        pool.events.on(EventName.TASK_DONE, self._task_done)

    @property
    def settled(self) -> bool:
        """Whether no lease is on its way: no claim awaits its answer, no grant waits for a slot."""
        return not self._waiting and not self._begun and not self._reserved and not self._claims.awaited(_now())

    def cordon(self, cordoned: bool = True) -> None:
        """Claim nothing more, or (False) claim again; what was claimed before is still run."""
        self._cordoned = cordoned

    def grant(self, grants: Iterable[Grant]) -> None:
        """Take what a reply granted: it is ours to heartbeat from here on. Then see to offers and refusals."""
        for grant in grants:
            task = LeasedTask(token=grant.task_token, input=grant.input)
            self._waiting[grant.id] = _WaitingLease(task, _now(), self._keep_alive(grant.id, task.token))
        self._fill()

    def held(self, now: float) -> tuple[HeldLease, ...]:
        """Return the leases that wait for a slot; those that run are the pool's to tell."""
        here = {**self._waiting, **self._begun}
        return tuple(HeldLease(lease, max(now - granted.since, 0.0)) for lease, granted in here.items())

    async def close(self) -> bool:
        """Once the pool has stopped: claim nothing more, and fail what no slot took, for the state machine's Retry.

        Tells whether there was any. Again, it sees to what a report that was on its way was still granted.
        """
        self._claims.withdraw()
        while self._reserved:
            self._reserved.pop().release()
        failed = False
        while self._waiting or self._running:
            if self._waiting:
                await self._fail(next(iter(self._waiting)))
                failed = True
            else:
                await asyncio.wait(self._running)
        return failed

    async def _fail(self, lease: str) -> None:
        """Fail a lease that waits; until that is done it is held, for reports."""
        granted = self._waiting[lease]
        granted.heartbeat.stop()
        with contextlib.suppress(SourceError):
            await self._pool.source.fail(
                granted.task.token, ERROR_WORKER_STOPPED, "the worker stopped before it had a free slot"
            )
        self._let_go(lease)

    def _let_go(self, lease: str) -> None:
        """Say that a lease which waited is over."""
        self._waiting.pop(lease, None)
        self._claims.concluded(lease)
        self._on_change()

    def _fill(self) -> None:
        """Give free slots first to what is granted, then to what may be claimed; free those that wait in vain."""
        while self._waiting and (slot := self._a_slot()) is not None:
            lease = next(iter(self._waiting))
            self._begun[lease] = granted = self._waiting.pop(lease)
            granted.heartbeat.stop()
            run = asyncio.get_running_loop().create_task(self._run(slot, lease))
            self._running.add(run)
            run.add_done_callback(self._running.discard)
        while not self._cordoned and self._claims.unclaimed and (slot := self._pool.reserve()) is not None:
            self._reserved.append(slot)
            self._claims.claim(1, _now())
            asyncio.get_running_loop().call_later(CLAIM_PATIENCE_SECONDS, self._fill)
        while len(self._reserved) > self._claims.reserved(_now()):
            self._reserved.pop().release()
        self._on_change()

    def _a_slot(self) -> Slot | None:
        return self._reserved.pop() if self._reserved else self._pool.reserve()

    async def _run(self, slot: Slot, lease: str) -> None:
        task = self._begun.pop(lease).task
        try:
            await slot.run_task(task)
        except SlotTakenError:
            # The slot stopped in between. Its successor, or the end, sees to the task.
            self.grant([Grant(lease_id(task.token), task.token, task.input)])

    def _keep_alive(self, lease: str, token: str) -> HeartbeatLoop:
        """Heartbeat a lease until a slot runs it or it is lost; the operator stopped when it granted it."""

        def lost(error: LeaseLostError) -> None:
            log.info("task %s was lost while it waited for a slot: %s", lease, error.code)
            self._let_go(lease)

        def failed(error: SourceError) -> None:
            log.debug("task %s waits for a slot; its heartbeat failed: %s", lease, error.code)

        listener = HeartbeatListener(accepted=lambda: None, failed=failed, lost=lost)
        heartbeat = HeartbeatLoop(self._pool.source, token, self._heartbeat_seconds, listener)
        heartbeat.start(first_after_seconds=0.0)
        return heartbeat

    def _polled(self, _: Slot, task: LeasedTask | None) -> None:
        if task is None and self._wants_slots():
            self._fill()

    def _answered(self, request: TaskRequest, _: TaskResponse) -> None:
        self._claims.concluded(request.lease_id)

    def _task_done(self, request: TaskRequest, _: object) -> None:
        self._claims.concluded(request.lease_id)
        slot = request.worker
        if self._wants_slots() and isinstance(slot, Slot) and not slot.cordoned:
            # It would poll before anybody could reserve it: hold it back until it has left its task.
            slot.cordon()
            asyncio.get_running_loop().call_soon(self._after_task, slot)

    def _after_task(self, slot: Slot) -> None:
        self._fill()
        if not self._cordoned:
            slot.uncordon()

    def _wants_slots(self) -> bool:
        return bool(self._waiting) or (not self._cordoned and self._claims.unclaimed)


def _now() -> float:
    return asyncio.get_running_loop().time()
