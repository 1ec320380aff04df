"""Assembles the observation of one pool from the store, the reports and the sources."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from activity_operator.api.spec import PoolSpec
from activity_operator.api.status import EventRecord, ExitRecord, parse_status
from activity_operator.cluster.facts import deployment_facts, pod_facts, pool_facts
from activity_operator.cluster.interfaces import Leader, PoolEventLike, PoolSourcesLike, Render, WorkerReports
from activity_operator.cluster.ownership import Ownership
from activity_operator.cluster.pool_state import PoolState
from activity_operator.cluster.resources import Key, Raw
from activity_operator.cluster.shared_sources import SharedSources
from activity_operator.core.lifecycle_ring import at_work, pod_events, vanished_pods
from activity_operator.core.observation import Observation
from activity_operator.core.tenancy import TenancyPolicy

#: Ends of pods in which a worker loses its tasks, and the reason that the metric gives.
LOST = {"OOMKilled": "oom", "Evicted": "evicted", "NodeLost": "node", "Shutdown": "node"}


@dataclass(frozen=True, slots=True)
class Observer:
    """Assembles observations. `now` is Unix seconds; `policy` is called each time, because its file may change.

    `lost(key, reason)` is called for each worker that ended without having drained.
    """

    render: Render
    ownership: Ownership
    reports: WorkerReports
    sources: PoolSourcesLike
    shared_sources: SharedSources
    leader: Leader
    policy: Callable[[], TenancyPolicy]
    now: Callable[[], float]
    lost: Callable[[Key, str], None]

    async def observe(self, key: Key, pool: Raw, spec: PoolSpec, state: PoolState) -> Observation:
        """Return the observation; reads unknown ReplicaSets from the API server. Raises `KubeError`."""
        facts = pool_facts(pool)
        pods = tuple(pod_facts(raw) for raw in await self.ownership.pods(key, facts.uid))
        # The manifest is not cached: a cache took 22 KB per pool, the largest part of the store, and saved 0.02 ms.
        manifest = self.render(spec, facts, 0)
        deployments = tuple(deployment_facts(raw, manifest) for raw in self.ownership.deployments(key, facts.uid))
        now = self.now()
        self._note_pods(key, state, {pod.uid: pod for pod in pods}, now)
        return Observation(
            now=now,
            pool=facts,
            deployments=deployments,
            pods=pods,
            workers=self.reports.workers(*key),
            source=self.sources.facts(key),
            leader_since=self.leader.led_since,
            report_path_problem=self.reports.report_path_problem(now),
            refusal=self._refusal(key[0], spec),
            sharing_pools=self.shared_sources.of(key, spec.identity(key[0])),
            rejected="" if state.rejected is None else state.rejected.message,
            authentication_problem=self.reports.authentication_problem,
            rejected_reason="" if state.rejected is None else state.rejected.reason,
        )

    def _refusal(self, namespace: str, spec: PoolSpec) -> str:
        aws = spec.aws
        watcher = spec.scaling.prometheus
        endpoints = (
            aws.endpoint_url or "",
            aws.cloud_watch_endpoint_url or "",
            "" if watcher is None else watcher.server_url,
        )
        return self.policy().refusal(namespace, spec.arn, aws.role_arn or "", *endpoints, arn_field=spec.arn_field)

    def _note_pods(self, key: Key, state: PoolState, pods: Mapping[str, Any], now: float) -> None:
        working = {worker.pod_uid for worker in self.reports.workers(*key) if at_work(worker)}
        for pod_event in (
            *pod_events(state.pods, pods.values(), state.inherited),
            *vanished_pods(state.pods, pods, working),
        ):
            self.reports.add_event(
                key, pod_event.name, pod_event.message, at=now, pod=pod_event.pod, exit_code=pod_event.exit_code
            )
            if pod_event.name in LOST:
                self.lost(key, LOST[pod_event.name])
        for uid in working & (state.pods.keys() - pods.keys()):
            if state.pods[uid].last_exit_reason not in LOST:
                self.lost(key, "gone")
        for uid in state.pods.keys() - pods.keys():
            self.reports.forget(uid)
        state.pods = pods


def event_records(events: Sequence[PoolEventLike]) -> tuple[EventRecord, ...]:
    """Return a pool's lifecycle events in the form of the status."""
    return tuple(
        EventRecord(
            at=datetime.fromtimestamp(int(event.at), UTC),
            name=event.name,
            worker=event.pod,
            message=event.message,
            count=event.count,
            exit=None if event.exit_code is None else ExitRecord(code=event.exit_code, error=event.message),
        )
        for event in events
    )


def inherited_events(pool: Raw) -> tuple[EventRecord, ...]:
    """Return the lifecycle events in the pool's status; () if the status cannot be parsed."""
    try:
        return parse_status(pool.get("status")).events
    except ValueError:
        return ()
