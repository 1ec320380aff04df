"""observe -> decide -> apply, for one pool at a time: level-triggered, retried for ever, only with the Lease."""

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from activity_operator.api.spec import PoolSpec, SpecError, parse_spec
from activity_operator.cluster import backoff, fence, status
from activity_operator.cluster.apply import REJECTED_SECONDS, Applier, NotLeadingError, Work, must_lead
from activity_operator.cluster.due import Due
from activity_operator.cluster.events import EventPoster
from activity_operator.cluster.freshness import Freshness
from activity_operator.cluster.kinds import POOLS, Key, Raw
from activity_operator.cluster.kube import ApiError, ApiUnreachableError, KubeError
from activity_operator.cluster.look import Observer, inherited, story
from activity_operator.cluster.pool_state import PoolState
from activity_operator.cluster.queue import Queue
from activity_operator.cluster.store import Store
from activity_operator.core.decision import Decision, Say, SentinelOrder
from activity_operator.core.lifecycle_ring import merge
from activity_operator.core.observation import Observation

#: Failures in a row, each longer after the one before, from which they are no passing trouble: about two seconds.
TOLD_FAILURES = 3

log = logging.getLogger(__name__)


class Gauges(Protocol):
    """What the reconciler tells the metrics."""

    def reconciled(self, result: str, seconds: float) -> None:
        """One look ended: ok, conflict, unreachable, refused or error."""
        ...

    def scaled(self, key: Key, by: int, reason: str, seconds: float) -> None:
        """Replicas were written, so many seconds after the pool was queued."""
        ...

    def seen(self, key: Key, spec: PoolSpec, seen: Observation, decision: Decision, said: Mapping[str, Any]) -> None:
        """Take in a pool's numbers."""
        ...

    def status_written(self) -> None:
        """A status was written."""
        ...

    def forget(self, key: Key) -> None:
        """The pool is gone: so are its series."""
        ...


@dataclass(slots=True)
class Rooms:
    """What the reconciler works with. `prepare(namespace)` puts there what every pod mounts; cheap when it is there."""

    store: Store
    queue: Queue
    due: Due
    observer: Observer
    applier: Applier
    writer: status.StatusWriter
    events: EventPoster
    freshness: Freshness
    gauges: Gauges
    prepare: Callable[[str], Awaitable[None]]


class Reconciler:
    """Looks at pools as the queue names them. `ready()` must hold, too: the store was swept since this term began."""

    def __init__(
        self,
        rooms: Rooms,
        *,
        ready: Callable[[], bool],
        clock: Callable[[], float],
        dice: Callable[[], float] | None = None,
    ) -> None:
        self._r = rooms
        self._ready = ready
        self._clock = clock
        self._dice = dice or random.random
        self._states: dict[Key, PoolState] = {}

    async def run(self) -> None:
        """Work on one key after another, until cancelled; several of these may run at once."""
        while True:
            key = await self._r.queue.get()
            try:
                await self.look_after(key)
            finally:
                self._r.queue.done(key)

    def begin_term(self) -> None:
        """Forget everything: what another leader did meanwhile is not in our memory."""
        self.end_term()

    def end_term(self) -> None:
        """Tell no pool's numbers any more: from here on they are another leader's to tell."""
        for key in self._states:
            self._r.gauges.forget(key)
        self._states.clear()

    async def look_after(self, key: Key) -> None:
        """Reconcile one pool and say when to look again; never raises but for cancellation."""
        began = self._clock()
        result, wait = "ok", None
        with fence.leave_of(self._must_lead):
            try:
                wait = await self._reconcile(key)
                if (state := self._states.get(key)) is not None:
                    state.failures = 0
            except NotLeadingError:
                result = "not_leading"
            except Exception as error:  # noqa: BLE001 - the others must be looked after, and this one tried again
                result, wait = self._failed(key, error)
                await self._admit(key, error)
        self._r.due.set(key, None if wait is None else self._clock() + wait)
        self._r.gauges.reconciled(result, self._clock() - began)

    def _failed(self, key: Key, error: Exception) -> tuple[str, float]:
        state = self._states.setdefault(key, PoolState("", self._clock()))
        state.failures += 1
        conflict = isinstance(error, ApiError) and error.conflict
        wait = backoff.delay(state.failures, self._dice(), conflict=conflict)
        if isinstance(error, ApiError):
            wait = max(wait, error.retry_after)
        name, again = "/".join(key), f"again in {wait:.1f} s"
        if conflict:
            log.info("%s changed meanwhile, %s", name, again)
            return "conflict", wait
        if isinstance(error, ApiUnreachableError):
            self._stop_polling(key)
            log.warning("%s: %s, %s", name, error, again)
            return "unreachable", wait
        if isinstance(error, KubeError | status.NameTakenError):
            log.warning("%s: %s, %s", name, error, again)
            return "refused", wait
        log.error("%s: looking after it failed, %s", name, again, exc_info=error)
        return "error", wait

    async def _admit(self, key: Key, error: Exception) -> None:
        """Say in the status that looking after the pool fails again and again, where that may last."""
        state, pool = self._states[key], self._r.store.pool(key)
        passes = isinstance(error, ApiUnreachableError) or (isinstance(error, ApiError) and error.conflict)
        if passes or pool is None or state.failures < TOLD_FAILURES:
            return
        try:
            await self._write(pool, status.failing(pool, error, self._r.observer.wall()), state)
        except (KubeError, NotLeadingError) as again:
            log.warning("%s: its status cannot be written: %s", "/".join(key), again)

    def _stop_polling(self, key: Key) -> None:
        """A task taken now could not be recorded: open no polls until the API server answers again."""
        pool = self._r.store.pool(key)
        if pool is not None:
            self._r.observer.signals.withdraw(key, deleted=False)

    async def _reconcile(self, key: Key) -> float | None:
        leader = self._r.observer.leader
        if not (leader.leading and self._ready()):
            return None
        pool = self._r.store.pool(key)
        if pool is None:
            self._forget(key)
            return None
        state = self._state_of(key, pool)
        try:
            spec = parse_spec(pool["spec"])
        except SpecError as error:
            return await self._refuse(key, pool, state, error)
        await self._r.prepare(key[0])
        seen = self._note_edits(pool, state, await self._r.observer.look(key, pool, spec, state))
        decision = self._r.observer.brain.decide(spec, seen, state.memory)
        state.memory = decision.memory
        deferred = await self._carry_out(key, pool, state, decision)
        self._order(key, spec, decision, state.uid)
        later = await self._say(key, spec, seen, decision, state)
        ends = state.contests.ends_in(self._clock())
        waits = [wait for wait in (decision.look_again_in, deferred, later, ends) if wait is not None]
        return min(waits, default=None)

    def _state_of(self, key: Key, pool: Raw) -> PoolState:
        state = self._states.get(key)
        uid = pool["metadata"]["uid"]
        if state is None or state.uid != uid:
            state = self._states[key] = PoolState(uid, self._clock(), inherited=inherited(pool))
        return state

    def _note_edits(self, pool: Raw, state: PoolState, seen: Observation) -> Observation:
        """Say so when somebody else wrote a Deployment's replicas, and note who does so again and again.

        What the pool needs is written over it.
        """
        now = self._clock()
        for edit in state.contests.note(seen.deployments, state.replicas, now):
            if edit.note and not state.contests.open(edit.name, now):
                self._r.events.say(pool, Say("Warning", "EditReverted", f"Deployment {edit.name} {edit.note}"))
        for found in seen.deployments:
            state.replicas[found.name] = found.replicas
        return replace(seen, contested=state.contests.sentence(now))

    async def _carry_out(self, key: Key, pool: Raw, state: PoolState, decision: Decision) -> float | None:
        """Do what was decided; return the seconds until what had to wait (a raise, a refused manifest) may be tried."""
        work = Work(key, pool, state.replicas, state.contests, last_raise=state.last_raise, rejected=state.rejected)
        try:
            await self._r.applier.apply(work, decision.actions)
        finally:
            state.last_raise, state.rejected = work.last_raise, work.rejected
        if work.scaled:
            waited = self._clock() - self._r.queue.asked_at(key, self._clock())
            self._r.gauges.scaled(key, work.scaled, decision.size.limit, waited)
        again = [at for at in (work.defer_until, work.rejected and work.rejected.at + REJECTED_SECONDS) if at]
        return max(min(again) - self._clock(), 0.0) if again else None

    def _order(self, key: Key, spec: PoolSpec, decision: Decision, pool_uid: str) -> None:
        """Only after the writes: a worker is told to drain when its pod already says so, never before."""
        self._must_lead()
        observer = self._r.observer
        observer.reports.set_directives(*key, decision.directives)
        order = decision.sentinel if observer.leader.reachable else SentinelOrder(0, decision.sentinel.take)
        observer.signals.order(key, order, spec, pool_uid)

    async def _say(
        self, key: Key, spec: PoolSpec, seen: Observation, decision: Decision, state: PoolState
    ) -> float | None:
        """Write the status if it is due; return the seconds until it will be."""
        pool = self._r.store.pool(key)
        if pool is None or pool["metadata"]["uid"] != state.uid:
            return None
        events = merge(state.inherited, story(self._r.observer.reports.events(*key)))
        # What is yet to be written is built upon: a decision that falls between two writes would be lost.
        previous = pool.get("status") if state.unwritten is None else state.unwritten
        wanted = self._r.observer.brain.status(spec, seen, decision, previous, events)
        self._r.gauges.seen(key, spec, seen, decision, wanted)
        wait = await self._write(pool, wanted, state)
        state.unwritten = None if wait is None else wanted
        return wait

    async def _refuse(self, key: Key, pool: Raw, state: PoolState, error: SpecError) -> float | None:
        """A spec that cannot be used: say so and leave the workers as they are."""
        self._r.observer.signals.withdraw(key, deleted=False)
        if state.memory.said.get("spec") != str(error):
            self._r.events.say(pool, Say("Warning", str(error.reason), str(error)))
        state.memory, state.unwritten = type(state.memory)(said={"spec": str(error)}), None
        return await self._write(pool, status.invalid(pool, error, self._r.observer.wall()), state)

    async def _write(self, pool: Raw, wanted: Mapping[str, Any], state: PoolState) -> float | None:
        since_last = self._clock() - state.status_written
        wait = self._r.writer.wait(pool, wanted, since_last)
        if wait == 0 and status.digest(wanted) == state.status and since_last < status.COUNTS_SECONDS:
            # The API server keeps it otherwise than it was sent: writing it again at once would never end.
            wait = status.COUNTS_SECONDS - since_last
        if wait is None or wait > 0:
            return wait
        self._must_lead()
        before = state.status_written, state.status
        state.status_written, state.status = self._clock(), status.digest(wanted)
        try:
            raw = await self._r.writer.write(pool, wanted)
        except ApiError as error:
            if error.conflict:
                state.status_written, state.status = before
                await self._r.applier.look_anew(POOLS, pool["metadata"]["namespace"], pool["metadata"]["name"])
            raise
        self._r.freshness.wrote(POOLS, raw)
        self._r.store.put(POOLS, raw)
        self._r.gauges.status_written()
        return None

    def _must_lead(self) -> None:
        must_lead(self._r.observer.leader)

    def _forget(self, key: Key) -> None:
        """The pool is gone: its Deployments go by garbage collection, everything of ours goes here."""
        state = self._states.pop(key, None)
        if state is not None:
            self._r.events.forget(state.uid)
            for uid in state.pods:
                self._r.observer.reports.forget(uid)
        self._r.observer.signals.withdraw(key, deleted=True)
        self._r.observer.reports.forget_pool(*key)
        self._r.observer.rivals.forget(key)
        self._r.gauges.forget(key)
