"""Builds the object graph of an operator process. Only this module knows which part gets which other parts."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from activity_operator import health
from activity_operator.backlog.cloudwatch import CloudWatchReader
from activity_operator.backlog.lease_budget import MEBIBYTE, LeaseBudget
from activity_operator.backlog.metric_rounds import MetricPoller
from activity_operator.backlog.preflight import ActivityPreflight, ActivityServices
from activity_operator.backlog.protocol import PollTarget, TaskService
from activity_operator.backlog.sentinel import Sentinels
from activity_operator.backlog.stepfunctions import StepFunctions
from activity_operator.backlog.swf import Swf
from activity_operator.backlog.task_list_rounds import CountQuota, TaskListPoller
from activity_operator.backlog.task_services import TaskServices
from activity_operator.clock import SlewedClock, clock
from activity_operator.cluster.all_pools import AllPools
from activity_operator.cluster.apply import Applier
from activity_operator.cluster.delay_queue import DelayQueue
from activity_operator.cluster.election import Elector, Timing
from activity_operator.cluster.event_publisher import EventPublisher
from activity_operator.cluster.interfaces import CoreFunctions
from activity_operator.cluster.kube import Credentials, KubeClient
from activity_operator.cluster.leader_label import LeaderLabel
from activity_operator.cluster.observer import Observer
from activity_operator.cluster.ownership import Ownership
from activity_operator.cluster.reconciler import Reconciler, ReconcilerDeps
from activity_operator.cluster.resources import PODS, POOLS, SECRETS, Key, Raw, Resource
from activity_operator.cluster.resync import Resyncer
from activity_operator.cluster.secret_values import SecretValues
from activity_operator.cluster.shared_sources import SharedSources
from activity_operator.cluster.status_budget import StatusBudget
from activity_operator.cluster.status_updates import StatusUpdates
from activity_operator.cluster.status_writer import StatusWriter
from activity_operator.cluster.store import Store
from activity_operator.cluster.workqueue import WorkQueue
from activity_operator.components import AuthenticatedRegistry, ClusterServices, Components
from activity_operator.core import manifests
from activity_operator.core.decide import decide
from activity_operator.core.decision import EmitEvent
from activity_operator.core.status import pool_status, urgent_part
from activity_operator.core.tenancy import TenancyPolicy
from activity_operator.counted_sources import CountedSources
from activity_operator.leases.dependencies import LeaseManagerDeps
from activity_operator.leases.handover import LeaseHandover
from activity_operator.leases.manager import LeaseManager
from activity_operator.leases.model import PoolRef
from activity_operator.leases.secret_store import SecretLeaseStore
from activity_operator.metrics import Metrics
from activity_operator.process import Process
from activity_operator.reports import certificates
from activity_operator.reports.authentication import Authenticator
from activity_operator.reports.certificate_manager import CertificateManager
from activity_operator.reports.handler import ReportHandler
from activity_operator.reports.server import Limits, ReportServer
from activity_operator.settings import OperatorSettings
from activity_operator.watch.freshness import Freshness
from activity_operator.watch.kopf_watch import KopfWatch
from activity_worker.contract import LABEL_REVISION, LeasedTask


def core_functions(settings: OperatorSettings) -> CoreFunctions:
    """Return the pure functions of `core`. Every rendering of this process gets the same report URL."""
    render = partial(manifests.render, manifests.RenderSettings(report_url=settings.report_url))
    return CoreFunctions(decide, render, pool_status, urgent_part)


@dataclass(frozen=True, slots=True)
class _ClusterParts:
    """The parts that know Kubernetes."""

    kube: KubeClient
    now: SlewedClock
    queue: WorkQueue
    store: Store
    freshness: Freshness
    ownership: Ownership
    elector: Elector
    resyncer: Resyncer
    events: EventPublisher
    delay_queue: DelayQueue
    all_pools: AllPools

    def emit_event(self, key: Key, event: EmitEvent) -> None:
        """Publish an Event on a pool, if there still is one of that name."""
        pool = self.store.pool(key)
        if pool is not None:
            self.events.publish(pool, event)


class _LateProcess:
    """Stands for the process in the parts that are built before it. They call it only once the process runs."""

    process: Process

    def leadership_changed(self, leading: bool) -> None:
        self.process.leadership_changed(leading)

    def resynced(self) -> None:
        self.process.resynced()

    def receive_event(self, resource: Resource, gone: bool, raw: Raw) -> None:
        self.process.receive_event(resource, gone, raw)

    def may_decide(self) -> bool:
        return self.process.may_decide()

    def fail(self, why: str) -> None:
        self.process.fail(why)


async def build_process(
    settings: OperatorSettings,
    credentials: Credentials,
    metrics: Metrics,
    policy: Callable[[], TenancyPolicy],
    *,
    core: CoreFunctions | None = None,
    make_components: Callable[[ClusterServices], Components] | None = None,
) -> Process:
    """Build a process, without a call to any server. `policy` returns the tenancy policy.

    Tests replace `core` and `make_components`. An error of `credentials` is raised to the caller.
    """
    late = _LateProcess()
    parts = await _cluster_parts(settings, credentials, metrics, late)
    services = ClusterServices(
        settings=settings,
        kube=parts.kube,
        store=parts.store,
        ownership=parts.ownership,
        elector=parts.elector,
        metrics=metrics,
        enqueue=parts.queue.add,
        enqueue_urgent=partial(parts.queue.add, urgent=True),
        enqueue_all=parts.all_pools.enqueue,
        spread_all=parts.all_pools.enqueue_spread,
        emit_event=parts.emit_event,
        fail=late.fail,
        policy=policy,
        now=parts.now,
    )
    components = (make_components or build_components)(services)
    deps = _reconciler_deps(parts, services, components, core or core_functions(settings))
    watcher = KopfWatch(credentials, late.receive_event, parts.resyncer.request_soon, late.fail)
    late.process = Process(
        settings=settings,
        metrics=metrics,
        policy=policy,
        kube=parts.kube,
        queue=parts.queue,
        store=parts.store,
        all_pools=parts.all_pools,
        delay_queue=parts.delay_queue,
        freshness=parts.freshness,
        elector=parts.elector,
        resyncer=parts.resyncer,
        label=LeaderLabel(parts.kube, settings.namespace, settings.pod_name, parts.elector),
        watcher=watcher,
        components=components,
        events=parts.events,
        reconciler=Reconciler(deps, ready=late.may_decide, clock=clock),
        health=_health(settings, metrics, parts, watcher),
    )
    return late.process


async def _cluster_parts(
    settings: OperatorSettings, credentials: Credentials, metrics: Metrics, late: _LateProcess
) -> _ClusterParts:
    now = SlewedClock(time.time, clock)
    kube = await KubeClient.connect(
        credentials, lambda verb, plural, code: metrics.requested("kubernetes", f"{verb.lower()} {plural}", code)
    )

    def add_due(key: Key) -> None:
        queue.add(key)

    delay_queue = DelayQueue(add_due, clock)
    queue = WorkQueue(clock, delay_queue.advance)
    metrics.queue_length.set_function(queue.__len__)
    store = Store(queue.add)
    freshness = Freshness(settings.watch_grace_seconds, clock)
    ownership = Ownership(store, kube)
    identity = f"{settings.pod_name or 'process'}_{uuid.uuid4().hex[:12]}"
    elector = Elector(
        kube,
        settings.namespace,
        settings.lease_name,
        identity,
        clock=clock,
        wall=now,
        on_change=late.leadership_changed,
        timing=_timing(settings),
    )
    resyncer = Resyncer(
        kube,
        store,
        freshness,
        ownership,
        every_seconds=settings.sweep_seconds,
        clock=clock,
        done=late.resynced,
    )
    events = EventPublisher(kube, identity, allowed=lambda: elector.leading, clock=clock, wall=now)
    all_pools = AllPools(store, queue, delay_queue, clock)
    return _ClusterParts(
        kube, now, queue, store, freshness, ownership, elector, resyncer, events, delay_queue, all_pools
    )


def _reconciler_deps(
    parts: _ClusterParts,
    services: ClusterServices,
    components: Components,
    core: CoreFunctions,
) -> ReconcilerDeps:
    shared_sources = SharedSources(parts.queue.add)
    observer = Observer(
        core.render,
        parts.ownership,
        components.reports,
        components.sources,
        shared_sources.sharing,
        parts.elector,
        services.policy,
        parts.now,
    )
    applier = Applier(
        parts.kube, parts.store, parts.freshness, parts.elector, clock=clock, emit_event=parts.events.publish
    )
    return ReconcilerDeps(
        parts.store,
        parts.queue,
        parts.delay_queue,
        observer,
        components.reports,
        components.sources,
        shared_sources,
        parts.elector,
        applier,
        _status_updates(parts, services, components, applier, core),
        parts.events,
        services.metrics,
        components.prepare,
        core,
    )


def _status_updates(
    parts: _ClusterParts, services: ClusterServices, components: Components, applier: Applier, core: CoreFunctions
) -> StatusUpdates:
    settings = services.settings
    return StatusUpdates(
        store=parts.store,
        reports=components.reports,
        writer=StatusWriter(parts.kube),
        budget=StatusBudget(settings.status_rate, settings.reconcile_workers, clock),
        refresh=applier.refresh,
        watch_check=parts.freshness,
        metrics=services.metrics,
        leader=parts.elector,
        core=core,
        clock=clock,
        now=parts.now,
    )


def build_components(
    services: ClusterServices,
    stepfunctions: StepFunctions | None = None,
    cloudwatch: CloudWatchReader | None = None,
    swf: Swf | None = None,
) -> Components:
    """Build the reports, polls, counts and leases. The metrics count the calls to the services of AWS."""
    settings, kube, elector = services.settings, services.kube, services.elector
    stepfunctions = stepfunctions or StepFunctions(settings.pod_name or "process")
    cloudwatch = cloudwatch or CloudWatchReader()
    stepfunctions.observed = partial(services.metrics.called, "stepfunctions")
    cloudwatch.observed = partial(services.metrics.called, "cloudwatch")
    swf = swf or Swf(pod_name=settings.pod_name or "process")
    swf.observed = partial(services.metrics.called, "swf")
    task_lists = TaskListPoller(swf, on_change=services.enqueue, now=services.now, quota=_count_quota(settings))
    reports = AuthenticatedRegistry(
        lambda namespace, pool: services.enqueue((namespace, pool)),
        rate=settings.report_rate,
        node_of=partial(_node_of, services.store),
        on_counts=services.metrics.worked,
        revision_of=partial(_revision_of, services.store),
    )
    reports.authenticator = Authenticator(
        kube.create_token_review,
        now=services.now,
        on_problem=services.spread_all,
        interval=lambda: reports.interval_seconds,
    )
    leases, sentinels = _leases_and_sentinels(services, TaskServices(stepfunctions, swf))
    server = ReportServer(
        reports.authenticator,
        ReportHandler(reports, LeaseHandover(leases), term=lambda: elector.term, now=services.now),
        leading=lambda: elector.leading and components.ready,
        member=services.ownership.pool_of,
        observed=lambda status: services.metrics.requested("reports", "report", status),
        limits=Limits(connections=settings.report_connections),
    )
    components = Components(
        services,
        reports=reports,
        server=server,
        certificates=CertificateManager(
            kube, settings.namespace, report_names(settings), now=services.now, on_bundle=services.spread_all
        ),
        leases=leases,
        sentinels=sentinels,
        metrics=MetricPoller(cloudwatch, on_change=services.enqueue, now=services.now, wall=time.time),
        preflight=ActivityPreflight(
            ActivityServices(stepfunctions, swf),
            polled_at=lambda key: max(sentinels.facts(key).observed_at, task_lists.answered_at(key)),
            on_change=services.enqueue,
            now=services.now,
        ),
        counted_sources=_counted_sources(services),
        task_lists=task_lists,
        stepfunctions=stepfunctions,
        swf=swf,
        cloudwatch=cloudwatch,
    )
    return components


def _node_of(store: Store, pod_uid: str) -> str:
    """Return the name of the pod's node, "" for an unknown pod."""
    pod = store.by_uid(PODS, pod_uid)
    return "" if pod is None else str(pod["spec"]["nodeName"])


def _revision_of(store: Store, pod_uid: str) -> str:
    """Return the template revision of the pod, "" for an unknown pod."""
    pod = store.by_uid(PODS, pod_uid)
    return "" if pod is None else str((pod["metadata"].get("labels") or {}).get(LABEL_REVISION, ""))


def _leases_and_sentinels(services: ClusterServices, service: TaskService) -> tuple[LeaseManager, Sentinels]:
    """Build both together, since each calls the other: polls bring leases, and leases limit the number of polls."""
    store, elector = services.store, services.elector

    def leases_changed(key: Key) -> None:
        sentinels.leases_changed(key)
        services.enqueue(key)

    def receive(key: Key, pool_uid: str, target: PollTarget, task: LeasedTask) -> None:
        leases.receive(PoolRef(*key, pool_uid), target, task)
        services.enqueue_urgent(key)

    deps = LeaseManagerDeps(
        now=services.now,
        pool_exists=lambda uid: store.by_uid(POOLS, uid) is not None,
        pod_exists=lambda uid: store.by_uid(PODS, uid) is not None,
        on_change=leases_changed,
        emit_event=services.emit_event,
        leads=lambda: elector.leading,
    )
    records = SecretLeaseStore(services.kube, services.settings.namespace, lambda: elector.leading)
    leases = LeaseManager(records, service, deps)
    sentinels = Sentinels(
        service,
        holdings=leases.counts,
        totals=leases.totals,
        budget=LeaseBudget(services.settings.held_leases, services.settings.held_leases_mib * MEBIBYTE),
        on_task=receive,
        on_change=services.enqueue,
        now=services.now,
    )
    return leases, sentinels


def _counted_sources(services: ClusterServices) -> CountedSources:
    return CountedSources(
        SecretValues(partial(services.kube.get, SECRETS), on_change=services.enqueue),
        services.policy,
        on_change=services.enqueue,
        called=services.metrics.called,
        now=services.now,
        redis_seconds=services.settings.redis_count_seconds,
    )


def _count_quota(settings: OperatorSettings) -> CountQuota:
    return CountQuota(settings.swf_counts_per_second, settings.swf_count_seconds)


def _timing(settings: OperatorSettings) -> Timing:
    return Timing(
        settings.lease_duration_seconds,
        settings.lease_renew_deadline_seconds,
        settings.lease_retry_seconds,
        min(4.0, settings.lease_renew_deadline_seconds / 2),
    )


def _health(
    settings: OperatorSettings, metrics: Metrics, parts: _ClusterParts, watcher: KopfWatch
) -> health.OperatorHealthServer:
    resyncer = parts.resyncer
    live = {
        "watch": lambda: parts.freshness.problem,
        "watch-loop": health.watch_loop(lambda: watcher.silence),
        "reconcile": health.progress(parts.queue.oldest, clock),
        "sweep": health.resync_is_recent(lambda: resyncer.attempted, settings.sweep_seconds, clock),
    }
    ready = {"sweep": lambda: "" if resyncer.covered is not None else "the first sweep is not done"}
    return health.OperatorHealthServer(live, ready, metrics.render, settings.health_host, settings.health_port)


def report_names(settings: OperatorSettings) -> tuple[str, ...]:
    """Return the DNS names of the report server's Service, from the shortest to the full name."""
    return certificates.report_names(settings.report_service, settings.namespace)
