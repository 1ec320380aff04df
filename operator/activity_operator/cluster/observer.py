"""Assembles the observation of one pool from the store, the reports and the sources. It changes none of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from activity_operator.api.spec import PoolSpec
from activity_operator.api.status import EventRecord, ExitRecord, parse_status
from activity_operator.cluster.facts import deployment_facts, pool_facts
from activity_operator.cluster.interfaces import Leader, PoolEventLike, PoolSourcesView, Render, WorkerReportsView
from activity_operator.cluster.ownership import Ownership
from activity_operator.cluster.parsed_pool import ParsedPool, parse_pods
from activity_operator.cluster.pod_changes import PodChanges, pod_changes
from activity_operator.cluster.pool_state import PoolState
from activity_operator.cluster.resources import Key, Raw
from activity_operator.core.observation import Observation, PoolFacts, WorkerFacts
from activity_operator.core.tenancy import TenancyPolicy


@dataclass(frozen=True, slots=True)
class ObserverResult:
    """An observation, the changes of the pods since the one before, and what need not be parsed again."""

    observation: Observation
    changes: PodChanges
    parsed: ParsedPool


@dataclass(frozen=True, slots=True)
class Observer:
    """Assembles observations. `now` is Unix seconds; `policy` is called each time, because its file may change.

    `sharing(key, source)` returns the other pools on a source, as namespace/name.
    """

    render: Render
    ownership: Ownership
    reports: WorkerReportsView
    sources: PoolSourcesView
    sharing: Callable[[Key, str], tuple[str, ...]]
    leader: Leader
    policy: Callable[[], TenancyPolicy]
    now: Callable[[], float]

    async def observe(self, key: Key, pool: Raw, spec: PoolSpec, state: PoolState) -> ObserverResult:
        """Return the observation, and what the caller records in `state`.

        Unknown ReplicaSets are read from the API server. Raises `KubeError`.
        """
        facts = pool_facts(pool)
        pods = parse_pods(await self.ownership.pods(key, facts.uid), state.pods)
        parsed = self._parsed(key, pool, spec, facts, state.parsed)
        now = self.now()
        workers = self.reports.workers(*key)
        changes = pod_changes(state.pods, pods, workers, state.inherited)
        path = self.reports.report_path(*key, now, spec.stalled.deadline_seconds)
        observation = Observation(
            now=now,
            pool=facts,
            deployments=parsed.deployments,
            pods=pods.facts,
            workers=_present(workers, changes.gone),
            source=self.sources.facts(key),
            leader_since=self.leader.led_since,
            report_path_problem=path.problem,
            excused_workers=path.excused,
            refusal=self._refusal(key[0], spec),
            sharing_pools=self.sharing(key, spec.identity(key[0])),
            rejected="" if state.rejected is None else state.rejected.message,
            authentication_problem=self.reports.authentication_problem,
            tasks=self.reports.tasks(*key, now),
            rejected_reason="" if state.rejected is None else state.rejected.reason,
        )
        return ObserverResult(observation, changes, parsed)

    def _parsed(self, key: Key, pool: Raw, spec: PoolSpec, facts: PoolFacts, before: ParsedPool | None) -> ParsedPool:
        """Return the facts of the pool's Deployments; `before` saves rendering and comparing if nothing has changed."""
        raws = self.ownership.deployments(key, facts.uid)
        if before is not None and before.is_of(spec, facts.generation, raws):
            return before
        # The manifest is not cached: a cache took 22 KB per pool, the largest part of the store, and saved 0.02 ms.
        manifest = self.render(spec, facts, 0)
        deployments = tuple(deployment_facts(raw, manifest) for raw in raws)
        return ParsedPool(pool["spec"], spec, facts.generation, tuple(raws), deployments)

    def _refusal(self, namespace: str, spec: PoolSpec) -> str:
        aws = spec.aws
        watcher = spec.scaling.prometheus
        endpoints = (
            aws.endpoint_url or "",
            aws.cloud_watch_endpoint_url or "",
            "" if watcher is None else watcher.server_url,
        )
        domain = "" if spec.swf is None else spec.swf.domain
        return self.policy().refusal(
            namespace, spec.arn, aws.role_arn or "", *endpoints, arn_field=spec.arn_field, swf_domain=domain
        )


def _present(workers: tuple[WorkerFacts, ...], gone: frozenset[str]) -> tuple[WorkerFacts, ...]:
    return tuple(worker for worker in workers if worker.pod_uid not in gone) if gone else workers


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
