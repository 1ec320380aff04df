"""Computes the status of a pool and writes it when that is due: conditions at once, counts within the budget."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from activity_operator.api.spec import PoolSpec, SpecError
from activity_operator.cluster import status_writer
from activity_operator.cluster.apply import must_lead
from activity_operator.cluster.interfaces import CoreFunctions, Leader, WatchCheck, WorkerReports
from activity_operator.cluster.kube import ApiError
from activity_operator.cluster.observer import event_records
from activity_operator.cluster.pool_state import PoolState
from activity_operator.cluster.resources import POOLS, Key, Raw, Resource
from activity_operator.cluster.status_budget import StatusBudget
from activity_operator.cluster.store import Store
from activity_operator.core.decision import Decision
from activity_operator.core.lifecycle_ring import merge_events
from activity_operator.core.observation import Observation


class StatusMetrics(Protocol):
    """The metrics that follow from a status."""

    def observed(
        self, key: Key, spec: PoolSpec, observation: Observation, decision: Decision, status: Mapping[str, Any]
    ) -> None:
        """Record a pool's gauges."""
        ...

    def status_written(self) -> None:
        """Record a write of a status."""
        ...


@dataclass(frozen=True, slots=True)
class StatusUpdates:
    """The statuses of all pools. `now` is Unix seconds, `clock` monotonic seconds.

    `refresh(resource, namespace, name)` reads an object into the store after a conflict.
    """

    store: Store
    reports: WorkerReports
    writer: status_writer.StatusWriter
    budget: StatusBudget
    refresh: Callable[[Resource, str, str], Awaitable[None]]
    watch_check: WatchCheck
    metrics: StatusMetrics
    leader: Leader
    core: CoreFunctions
    clock: Callable[[], float]
    now: Callable[[], float]

    async def update(
        self, key: Key, spec: PoolSpec, observation: Observation, decision: Decision, state: PoolState
    ) -> float | None:
        """Write the status if that is due; return the seconds until it is, or None.

        The status is the largest part of a reconciliation. It is computed only if it might be written: when a condition
        or the size has changed, and otherwise when counts are due.
        """
        pool = self.store.pool(key)
        if pool is None or pool["metadata"]["uid"] != state.uid:
            return None
        # The new status builds on the deferred one, or the deferred one's decisions would be lost.
        previous = pool.get("status") if state.unwritten is None else state.unwritten
        urgent: tuple[object, ...] = ()
        if self.core.urgent_part is not None:
            before, urgent = state.urgent_part, self.core.urgent_part(spec, observation, decision, previous)
            until_counts = self._counts_wait(key, state)
            if until_counts > 0 and before == urgent and not decision.victims:
                self.metrics.observed(key, spec, observation, decision, previous or {})
                return until_counts
        events = merge_events(state.inherited, event_records(self.reports.events(*key)))
        wanted = self.core.status(spec, observation, decision, previous, events)
        self.metrics.observed(key, spec, observation, decision, wanted)
        # A condition whose write fails, or waits for the budget, is as urgent at the next try.
        state.urgent_part = ()
        wait = await self._write(key, pool, wanted, state)
        state.unwritten = None if wait is None else wanted
        if wait is None or not status_writer.is_urgent(pool.get("status") or {}, wanted):
            state.urgent_part = urgent
        return wait

    async def refuse(self, key: Key, pool: Raw, state: PoolState, error: SpecError) -> float | None:
        """Write that the spec is invalid; return the seconds until that may be written, or None."""
        state.unwritten = None
        return await self._write(key, pool, status_writer.invalid_spec_status(pool, error, self.now()), state)

    async def fail(self, key: Key, pool: Raw, state: PoolState, error: Exception) -> None:
        """Write that the reconciliation fails."""
        await self._write(key, pool, status_writer.failing_status(pool, error, self.now()), state)

    def forget(self, key: Key) -> None:
        """Forget a pool that is gone."""
        self.budget.forget(key)

    def forget_all(self) -> None:
        """Forget all pools, at the end of a term."""
        self.budget.forget_all()

    async def _write(self, key: Key, pool: Raw, wanted: Mapping[str, Any], state: PoolState) -> float | None:
        wait = self._wait(key, pool, wanted, state)
        if wait is None or wait > 0:
            return wait
        must_lead(self.leader)
        before = state.status_written, state.status
        state.status_written, state.status = self.clock(), status_writer.digest(wanted)
        try:
            with self.budget.writing():
                raw = await self.writer.write(pool, wanted)
        except ApiError as error:
            if error.conflict:
                state.status_written, state.status = before
                await self.refresh(POOLS, *key)
            raise
        self.watch_check.wrote(POOLS, raw)
        self.store.put(POOLS, raw)
        self.metrics.status_written()
        return None

    def _counts_wait(self, key: Key, state: PoolState) -> float:
        """Return the seconds until the pool's counts may be written, if they have changed."""
        since_last = self.clock() - state.status_written
        return max(status_writer.COUNTS_SECONDS - since_last, self.budget.waiting(key))

    def _wait(self, key: Key, pool: Raw, wanted: Mapping[str, Any], state: PoolState) -> float | None:
        """Return the seconds until `wanted` may be written, None if the API server already has it."""
        since_last = self.clock() - state.status_written
        wait = self.writer.wait(pool, wanted, since_last)
        if wait == 0 and status_writer.digest(wanted) == state.status and since_last < status_writer.COUNTS_SECONDS:
            # The API server stores this status differently than it was sent. Immediate writes would never end.
            wait = status_writer.COUNTS_SECONDS - since_last
        if wait is None or wait > 0:
            return wait
        return self.budget.wait(key, urgent=status_writer.is_urgent(pool.get("status") or {}, wanted))
