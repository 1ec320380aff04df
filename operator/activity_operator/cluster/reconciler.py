"""Reconciles one pool at a time: observe, decide, apply. Level-triggered, retried without end, by the leader only."""

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from activity_operator import backoff
from activity_operator.api.spec import PoolSpec, SpecError
from activity_operator.cluster import fence
from activity_operator.cluster.apply import REJECTED_SECONDS, Applier, NotLeadingError, Work, must_lead
from activity_operator.cluster.decision_log import log_decision
from activity_operator.cluster.delay_queue import DelayQueue
from activity_operator.cluster.event_publisher import EventPublisher
from activity_operator.cluster.interfaces import CoreFunctions, Leader, PoolSourcesLike, WorkerReports
from activity_operator.cluster.kube import ApiError, ApiUnreachableError, KubeError
from activity_operator.cluster.observer import Observer, ObserverResult, inherited_events
from activity_operator.cluster.parsed_pool import parse_pool_spec
from activity_operator.cluster.pool_state import PoolState
from activity_operator.cluster.resources import Key, Raw
from activity_operator.cluster.shared_sources import SharedSources
from activity_operator.cluster.status_updates import StatusUpdates
from activity_operator.cluster.status_writer import NameTakenError
from activity_operator.cluster.store import Store
from activity_operator.cluster.turn_budget import TurnBudget
from activity_operator.cluster.workqueue import WorkQueue
from activity_operator.core.decision import ApplyRevision, Decision, EmitEvent
from activity_operator.core.observation import Observation

#: Consecutive failures after which the status shows them, and after which no worker stands by any more, because its
#: orders may be out of date: about two seconds, with the back-off.
SHOWN_FAILURES = 3
#: First and longest wait after failures in a row. The first one is shorter after a conflict, because the watch is about
#: to deliver the new version of the object.
RETRY_FIRST_SECONDS = 0.5
CONFLICT_SECONDS = 0.1
RETRY_CAP_SECONDS = 60.0
#: Least seconds to the next reconciliation. The rest of a wait may be smaller than the clock's resolution, and a timer
#: may fire a little early: the pool would be reconciled again and again until the time has come.
SOONEST_SECONDS = 0.001

log = logging.getLogger(__name__)


class ReconcilerMetrics(Protocol):
    """The metrics that the reconciler records."""

    def reconciled(self, result: str, seconds: float) -> None:
        """Record a reconciliation; `result` is ok, conflict, unreachable, refused, not_leading or error."""
        ...

    def scaled(self, key: Key, by: int, reason: str, seconds: float) -> None:
        """Record a write of replicas, `seconds` after the pool was queued."""
        ...

    def lost(self, key: Key, reason: str) -> None:
        """Record a worker that ended without having drained."""
        ...

    def forget(self, key: Key) -> None:
        """Remove the series of a pool."""
        ...

    def forget_all(self) -> None:
        """Remove the series of all pools."""
        ...


@dataclass(slots=True)
class ReconcilerDeps:
    """The reconciler's dependencies. `prepare(namespace)` creates what each pod mounts there; cheap if it exists."""

    store: Store
    queue: WorkQueue
    delay_queue: DelayQueue
    observer: Observer
    reports: WorkerReports
    sources: PoolSourcesLike
    shared_sources: SharedSources
    leader: Leader
    applier: Applier
    statuses: StatusUpdates
    events: EventPublisher
    metrics: ReconcilerMetrics
    prepare: Callable[[str], Awaitable[None]]
    core: CoreFunctions


class Reconciler:
    """Reconciles the pools in the queue. `ready()` says whether the store is up to date for the current term."""

    def __init__(
        self,
        deps: ReconcilerDeps,
        *,
        ready: Callable[[], bool],
        clock: Callable[[], float],
        jitter: backoff.Jitter = random.random,
    ) -> None:
        self._deps = deps
        self._ready = ready
        self._clock = clock
        self._jitter = jitter
        self._states: dict[Key, PoolState] = {}
        self._turns = TurnBudget(clock)

    async def run(self) -> None:
        """Reconcile one key after another, until cancelled; several of these loops may run concurrently."""
        while True:
            await self._turns.next_turn()
            key = await self._deps.queue.get()
            self._turns.begin()
            try:
                await self.reconcile(key)
            finally:
                self._deps.queue.done(key)

    def begin_term(self) -> None:
        """Forget the state of all pools, because another leader may have changed them."""
        self.end_term()

    def end_term(self) -> None:
        """Forget the state of all pools and remove their series, which the next leader exports."""
        self._deps.metrics.forget_all()
        self._deps.statuses.forget_all()
        self._states.clear()

    async def reconcile(self, key: Key) -> None:
        """Reconcile one pool and schedule the next reconciliation; raises nothing but CancelledError."""
        began = self._clock()
        result, wait = "ok", None
        with fence.checked_before_send(self._must_lead):
            try:
                wait = await self._reconcile(key)
                if (state := self._states.get(key)) is not None:
                    state.failures = 0
            except NotLeadingError:
                result = "not_leading"
            except Exception as error:  # noqa: BLE001 - this pool is tried again, and the other pools go on
                result, wait = self._failed(key, error)
                await self._report_failure(key, error)
        self._deps.delay_queue.set(key, None if wait is None else self._clock() + max(wait, SOONEST_SECONDS))
        self._deps.metrics.reconciled(result, self._clock() - began)

    def _failed(self, key: Key, error: Exception) -> tuple[str, float]:
        state = self._states.setdefault(key, PoolState("", self._clock()))
        state.failures += 1
        if state.failures >= SHOWN_FAILURES:
            self._deps.reports.end_stand_by(*key)
        conflict = isinstance(error, ApiError) and error.conflict
        first = CONFLICT_SECONDS if conflict else RETRY_FIRST_SECONDS
        wait = backoff.capped(state.failures, first, RETRY_CAP_SECONDS, self._jitter)
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
        if isinstance(error, KubeError | NameTakenError):
            log.warning("%s: %s, %s", name, error, again)
            return "refused", wait
        log.error("%s: its reconciliation failed, %s", name, again, exc_info=error)
        return "error", wait

    async def _report_failure(self, key: Key, error: Exception) -> None:
        """Write a repeated failure into the pool's status, except a conflict or an unreachable API server."""
        state, pool = self._states[key], self._deps.store.pool(key)
        transient = isinstance(error, ApiUnreachableError) or (isinstance(error, ApiError) and error.conflict)
        if transient or pool is None or state.failures < SHOWN_FAILURES:
            return
        try:
            await self._deps.statuses.fail(key, pool, state, error)
        except (KubeError, NotLeadingError) as refusal:
            log.warning("%s: its status cannot be written: %s", "/".join(key), refusal)

    def _stop_polling(self, key: Key) -> None:
        """Open no polls until the API server answers: a task that a poll returns could not be recorded."""
        if self._deps.store.pool(key) is not None:
            self._deps.sources.stop_polls(key)
            self._deps.reports.end_stand_by(*key)

    async def _reconcile(self, key: Key) -> float | None:
        if not (self._deps.leader.leading and self._ready()):
            return None
        pool = self._deps.store.pool(key)
        if pool is None:
            self._forget(key)
            return None
        state = self._state_of(key, pool)
        try:
            spec = parse_pool_spec(pool["spec"], state.parsed)
        except SpecError as error:
            return await self._refuse(key, pool, state, error)
        await self._deps.prepare(key[0])
        self._deps.shared_sources.record(key, spec.identity(key[0]))
        observed = await self._deps.observer.observe(key, pool, spec, state)
        self._record(key, state, observed)
        observation = self._note_edits(pool, state, observed.observation)
        decision = self._decide(spec, observation, state)
        state.memory = decision.memory
        deferred = await self._carry_out(key, pool, state, observation, decision)
        self._give_orders(key, spec, decision, state.uid)
        later = await self._deps.statuses.update(key, spec, observation, decision, state)
        ends = state.edit_conflicts.ends_in(self._clock())
        waits = [wait for wait in (decision.look_again_in, deferred, later, ends) if wait is not None]
        return min(waits, default=None)

    def _decide(self, spec: PoolSpec, observation: Observation, state: PoolState) -> Decision:
        """Return the decision, with rendered manifests in its `ApplyRevision` actions."""
        decision = self._deps.core.decide(spec, observation, state.memory)
        actions = tuple(
            replace(action, manifest=self._deps.core.render(spec, observation.pool, action.replicas))
            if isinstance(action, ApplyRevision)
            else action
            for action in decision.actions
        )
        return replace(decision, actions=actions)

    def _state_of(self, key: Key, pool: Raw) -> PoolState:
        state = self._states.get(key)
        uid = pool["metadata"]["uid"]
        if state is None or state.uid != uid:
            state = self._states[key] = PoolState(uid, self._clock(), inherited=inherited_events(pool))
        return state

    def _record(self, key: Key, state: PoolState, observed: ObserverResult) -> None:
        """Record the pods' lifecycle events and lost workers, and forget the reports of pods that are gone."""
        changes, now = observed.changes, observed.observation.now
        for event in changes.events:
            self._deps.reports.add_event(
                key, event.name, event.message, at=now, pod=event.pod, exit_code=event.exit_code
            )
        for reason in changes.lost:
            self._deps.metrics.lost(key, reason)
        for uid in changes.gone:
            self._deps.reports.forget(uid)
        state.pods = changes.pods
        # A pool without pods is seldom reconciled: to parse its spec again costs less than to keep what was parsed.
        state.parsed = observed.parsed if changes.pods.raws else None

    def _note_edits(self, pool: Raw, state: PoolState, observation: Observation) -> Observation:
        """Emit an Event for each foreign edit of a Deployment, and add an edit conflict to the observation.

        The decision overwrites the edit.
        """
        now = self._clock()
        for edit in state.edit_conflicts.find_edits(observation.deployments, state.replicas, now):
            if edit.note and not state.edit_conflicts.open(edit.name, now):
                self._deps.events.publish(
                    pool, EmitEvent("Warning", "EditReverted", f"Deployment {edit.name} {edit.note}")
                )
        for found in observation.deployments:
            state.replicas[found.name] = found.replicas
        return replace(observation, edit_conflict=state.edit_conflicts.message(now))

    async def _carry_out(
        self, key: Key, pool: Raw, state: PoolState, observation: Observation, decision: Decision
    ) -> float | None:
        """Apply the decision; return the seconds until a deferred or refused write may be tried again, or None."""
        work = Work(
            key, pool, state.replicas, state.edit_conflicts, last_raise=state.last_raise, rejected=state.rejected
        )
        complete = False
        try:
            await self._deps.applier.apply(work, decision.actions)
            complete = True
        finally:
            state.last_raise, state.rejected = work.last_raise, work.rejected
            # The write of replicas stands even if a later action has failed.
            if work.scaled:
                waited = self._clock() - self._deps.queue.asked_at(key, self._clock())
                self._deps.metrics.scaled(key, work.scaled, decision.size.limit, waited)
            log_decision(
                key,
                state,
                observation,
                decision,
                scaled=bool(work.scaled),
                cordoned=complete and bool(decision.victims),
            )
        if state.rejected is not None and not any(isinstance(action, ApplyRevision) for action in decision.actions):
            # The refused write is not wanted any more, and the status still shows it.
            state.rejected = None
            return 0.0
        # A refused write whose time has come waits for the end of an edit conflict like any other.
        retry_at = work.defer_until or (work.rejected and work.rejected.at + REJECTED_SECONDS)
        return max(retry_at - self._clock(), 0.0) if retry_at else None

    def _give_orders(self, key: Key, spec: PoolSpec, decision: Decision, pool_uid: str) -> None:
        """Pass directives to the reports and the order to the sources.

        This follows the writes: a worker gets the directive to drain only after its pod has the deletion cost.
        """
        self._must_lead()
        self._deps.reports.set_directives(*key, decision.directives)
        order = decision.sentinel if self._deps.leader.reachable else replace(decision.sentinel, polls=0)
        self._deps.sources.order(key, order, spec, pool_uid)

    async def _refuse(self, key: Key, pool: Raw, state: PoolState, error: SpecError) -> float | None:
        """Report an invalid spec in an Event and the status; leave the workers, but let all of them poll."""
        self._deps.sources.withdraw(key, deleted=False)
        self._deps.reports.end_stand_by(*key)
        if state.memory.announced.get("spec") != str(error):
            self._deps.events.publish(pool, EmitEvent("Warning", str(error.reason), str(error)))
        state.memory = type(state.memory)(announced={"spec": str(error)})
        return await self._deps.statuses.refuse(key, pool, state, error)

    def _must_lead(self) -> None:
        must_lead(self._deps.leader)

    def _forget(self, key: Key) -> None:
        """Forget a deleted pool everywhere in this process; Kubernetes garbage-collects its Deployments."""
        state = self._states.pop(key, None)
        if state is not None:
            self._deps.events.forget(state.uid)
            for uid in state.pods.by_uid:
                self._deps.reports.forget(uid)
        self._deps.sources.withdraw(key, deleted=True)
        self._deps.reports.forget_pool(*key)
        self._deps.shared_sources.forget(key)
        self._deps.statuses.forget(key)
        self._deps.metrics.forget(key)
