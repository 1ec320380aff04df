"""Leases that the operator hands over: slots are reserved for claims, and granted tasks are run in them.

Only free slots are reserved. A slot is free for a moment after an empty poll and after a task. Before the first poll
all slots are free, and the operator may hold the task for which the worker was started. A slot whose claim is not
answered in time polls again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from activity_worker.contract import ERROR_WORKER_STOPPED, EventName, Grant, HeldLease, LeasedTask, lease_id
from activity_worker.errors import LeaseLostError, SourceError
from activity_worker.runtime.heartbeat import HeartbeatListener, HeartbeatLoop
from activity_worker.runtime.slot import Slot, SlotTakenError
from activity_worker.runtime.slot_pool import SlotPool
from activity_worker.runtime.slot_stop import STOP_SECONDS
from activity_worker.runtime.task_run import conclude
from activity_worker.supervisor.claims import CLAIM_TIMEOUT_SECONDS, ClaimBook
from activity_worker.task import TaskRequest, TaskResponse

#: Seconds for which a stopped worker waits for a task that was left behind, before and after its cancellation.
LEFT_BEHIND_SECONDS = 0.1
#: Seconds that the source has at least to answer the failure of a lease, even if no time is left for a second try.
LEAST_FAIL_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _WaitingLease:
    """A granted lease until a slot runs it; `since` is the event loop's time of the grant."""

    task: LeasedTask
    since: float
    heartbeat: HeartbeatLoop


class GrantedLeases:
    """Runs offered leases in free slots. `on_change` is called when the contents of the next report change."""

    def __init__(
        self, pool: SlotPool, claims: ClaimBook, *, heartbeat_seconds: float, on_change: Callable[[], None]
    ) -> None:
        self._pool = pool
        self._claims = claims
        self._heartbeat_seconds = heartbeat_seconds
        self._on_change = on_change
        self._reserved: list[Slot] = []
        self._waiting: dict[str, _WaitingLease] = {}
        #: Leases with a slot that does not run them yet: until then the slot's own list does not contain them.
        self._starting: dict[str, _WaitingLease] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._cordoned = False
        pool.events.on(EventName.POLLING_SUCCESS, self._polled)
        # Once a task is concluded, its slot does not list it any more, even if its handler still runs.
        pool.events.on(EventName.TASK_SUCCESS, self._answered)
        pool.events.on(EventName.TASK_FAILURE, self._answered)
        pool.events.on(EventName.TASK_DONE, self._task_done)

    @property
    def settled(self) -> bool:
        """Whether no claim waits for its answer and no grant waits for a slot."""
        return not self._waiting and not self._starting and not self._reserved and not self._claims.awaited(_now())

    def cordon(self, cordoned: bool = True) -> None:
        """Claim no more leases, or (False) claim again. Leases that are claimed already are still run."""
        self._cordoned = cordoned

    def grant(self, grants: Iterable[Grant]) -> None:
        """Take over granted leases, whose heartbeats this worker sends from now on. Then claim offers."""
        for grant in grants:
            heartbeat = self._keep_alive(grant.id, grant.task_token)
            self._waiting[grant.id] = _WaitingLease(grant.task, _now(), heartbeat)
        self._fill()

    def held(self, now: float) -> tuple[HeldLease, ...]:
        """Return the leases that wait for a slot; the slot pool returns those that run."""
        here = {**self._waiting, **self._starting}
        return tuple(HeldLease(lease, max(now - granted.since, 0.0)) for lease, granted in here.items())

    async def close(self, conclude_seconds: float = STOP_SECONDS) -> bool:
        """Claim no more leases, and fail those that wait for a slot: the state machine's Retry repeats their tasks.

        A failure that the source does not take is tried again for `conclude_seconds`. Call this when the slot pool has
        stopped, and again after each report that was in flight: its reply may grant leases. Returns whether a lease was
        failed.
        """
        self._claims.withdraw()
        while self._reserved:
            self._reserved.pop().release()
        failed = False
        until = _now() + conclude_seconds
        while self._waiting or self._running:
            if self._waiting:
                await asyncio.gather(*(self._fail(lease, until - _now()) for lease in self._waiting))
                failed = True
            else:
                await self._end_runs()
        return failed

    async def _end_runs(self) -> None:
        """Wait for the tasks whose slots have stopped; leave behind one whose slot was stopped without it."""
        for cancel in (False, True):
            for run in self._running if cancel else ():
                run.cancel()
            if self._running:
                await asyncio.wait(self._running, timeout=LEFT_BEHIND_SECONDS)
        self._running.clear()

    async def _fail(self, lease: str, for_seconds: float) -> None:
        """Fail a waiting lease; until the service has answered, heartbeats go on and reports list it as held."""
        granted, source = self._waiting.get(lease), self._pool.source
        if granted is None:
            # A heartbeat has just found it lost.
            return
        token, cause = granted.task.token, "the worker stopped before it had a free slot"
        try:
            async with asyncio.timeout(max(for_seconds, LEAST_FAIL_SECONDS)):
                await conclude(
                    lambda: source.fail(token, ERROR_WORKER_STOPPED, cause),
                    lost=lambda: None if lease in self._waiting else LeaseLostError("LeaseLost"),
                    for_seconds=for_seconds,
                    stopping=lambda: True,
                )
        except (SourceError, TimeoutError) as error:
            log.warning("task %s, which waited for a slot, could not be failed: %s", lease, type(error).__name__)
        finally:
            granted.heartbeat.stop()
        self._forget(lease)

    def _forget(self, lease: str) -> None:
        """Forget a waiting lease that is concluded or lost."""
        self._waiting.pop(lease, None)
        self._claims.concluded(lease)
        self._on_change()

    def _fill(self) -> None:
        """Give free slots to granted leases, then reserve slots for claims; release slots whose claims are over."""
        while self._waiting and (slot := self._free_slot()) is not None:
            lease = next(iter(self._waiting))
            self._starting[lease] = granted = self._waiting.pop(lease)
            granted.heartbeat.stop()
            run = asyncio.get_running_loop().create_task(self._run(slot, lease))
            self._running.add(run)
            run.add_done_callback(self._running.discard)
        while not self._cordoned and self._claims.unclaimed and (slot := self._pool.reserve()) is not None:
            self._reserved.append(slot)
            self._claims.claim(1, _now())
            asyncio.get_running_loop().call_later(CLAIM_TIMEOUT_SECONDS, self._fill)
        while len(self._reserved) > self._claims.reserved(_now()):
            self._reserved.pop().release()
        self._on_change()

    def _free_slot(self) -> Slot | None:
        return self._reserved.pop() if self._reserved else self._pool.reserve()

    async def _run(self, slot: Slot, lease: str) -> None:
        task = self._starting.pop(lease).task
        try:
            await slot.run_task(task)
        except SlotTakenError:
            # The slot stopped meanwhile. Another slot runs the task, or `close` fails it.
            self.grant([Grant(lease_id(task.token), task.token, task.input, task.activity)])

    def _keep_alive(self, lease: str, token: str) -> HeartbeatLoop:
        """Send heartbeats until a slot runs the task or its lease is lost; the operator sends none after the grant."""

        def lost(error: LeaseLostError) -> None:
            log.info("task %s was lost while it waited for a slot: %s", lease, error.code)
            self._forget(lease)

        def failed(error: SourceError) -> None:
            log.debug("task %s waits for a slot; its heartbeat failed: %s", lease, error.code)

        listener = HeartbeatListener(accepted=lambda: None, failed=failed, lost=lost)
        heartbeat = HeartbeatLoop(lambda: self._pool.source.heartbeat(token), self._heartbeat_seconds, listener)
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
            # The slot would poll before it can be reserved: cordon it until it has left its task.
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
