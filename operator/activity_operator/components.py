"""What runs beside the cluster's part: reports of workers, polls and counts of task sources, leases of tasks."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from activity_operator.api.spec import PoolSpec
from activity_operator.backlog.cloudwatch import CloudWatchReader
from activity_operator.backlog.metric_rounds import MetricPoller
from activity_operator.backlog.preflight import ActivityPreflight
from activity_operator.backlog.protocol import PollTarget
from activity_operator.backlog.sentinel import Sentinels
from activity_operator.backlog.stepfunctions import StepFunctions
from activity_operator.backlog.swf import Swf
from activity_operator.backlog.task_list_rounds import TaskListPoller
from activity_operator.cluster.election import Elector
from activity_operator.cluster.kube import KubeClient
from activity_operator.cluster.ownership import Ownership
from activity_operator.cluster.resources import Key
from activity_operator.cluster.store import Store
from activity_operator.core.decision import EmitEvent, SentinelOrder
from activity_operator.core.observation import SourceFacts
from activity_operator.core.tenancy import TenancyPolicy
from activity_operator.counted_sources import CountedSources
from activity_operator.leases.manager import LeaseManager
from activity_operator.leases.rules import LeasePolicy
from activity_operator.metrics import Metrics
from activity_operator.reports.authentication import Authenticator
from activity_operator.reports.certificate_manager import CertificateManager
from activity_operator.reports.server import ReportServer
from activity_operator.reports.worker_registry import WorkerRegistry
from activity_operator.settings import OperatorSettings

#: Seconds for the records of the last polls' tasks when the polls have used up the time-out.
LAST_RECORDS_SECONDS = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterServices:
    """What the components may use of the cluster's part. `fail` ends the process, saying why; `now` is Unix seconds.

    `enqueue_all` queues every pool now, `spread_all` within seconds.
    """

    settings: OperatorSettings
    kube: KubeClient
    store: Store
    ownership: Ownership
    elector: Elector
    metrics: Metrics
    enqueue: Callable[[Key], None]
    enqueue_urgent: Callable[[Key], None]
    enqueue_all: Callable[[], None]
    spread_all: Callable[[], None]
    emit_event: Callable[[Key, EmitEvent], None]
    fail: Callable[[str], None]
    policy: Callable[[], TenancyPolicy]
    now: Callable[[], float]


class PoolSources:
    """Sentinels, counts and leases as the reconciler sees them: one order a pool, one answer."""

    def __init__(
        self,
        sentinels: Sentinels,
        metrics: MetricPoller,
        preflight: ActivityPreflight,
        counted_sources: CountedSources,
        task_lists: TaskListPoller,
        leases: LeaseManager,
        cluster_name: str,
    ) -> None:
        self._sentinels = sentinels
        self._preflight = preflight
        self._metrics = metrics
        self._counted_sources = counted_sources
        self._task_lists = task_lists
        self._leases = leases
        self._cluster_name = cluster_name

    def order(self, key: Key, order: SentinelOrder, spec: PoolSpec, pool_uid: str) -> None:
        """Set how many polls are kept open, whether counts are read, and on which terms leases are held."""
        hold = spec.activation.hold_seconds
        heartbeat = float(spec.task_heartbeat.interval_seconds)
        policy = LeasePolicy(
            heartbeat_seconds=heartbeat, hold_seconds=None if hold is None else float(hold), suspended=order.suspended
        )
        self._leases.set_policy(key, policy)
        self._counted_sources.order(key, order, spec)
        target = self.target(key, spec)
        counts_list = spec.swf is not None and order.counts
        self._task_lists.order(key, target if counts_list else None, order.pace)
        if spec.on_aws:
            self._sentinels.order(key, order, target, pool_uid)
        else:
            self._sentinels.forget(key)
        self._preflight.order(key, target if order.preflight else None)
        if spec.source_kind != "stepFunctions":
            self._metrics.order(key, None)
            return
        metric_target = replace(target, endpoint_url=spec.aws.cloud_watch_endpoint_url or "")
        self._metrics.order(key, metric_target if order.counts else None)

    def target(self, key: Key, spec: PoolSpec) -> PollTarget:
        """Return where the pool's tasks are; a role is assumed with an external id that names cluster and namespace."""
        role = spec.aws.role_arn or ""
        return PollTarget(
            arn=spec.arn,
            region=spec.region if spec.arn or spec.swf is not None else "",
            endpoint_url=spec.aws.endpoint_url or "",
            role_arn=role,
            external_id=f"{self._cluster_name}/{key[0]}" if role else "",
            domain="" if spec.swf is None else spec.swf.domain,
            task_list="" if spec.swf is None else spec.swf.task_list,
        )

    def facts(self, key: Key) -> SourceFacts:
        """Return what is known of the pool's source."""
        polled = self._sentinels.facts(key)
        metrics, metrics_error = self._metrics.latest(key)
        counts, error = self._counted_sources.latest(key)
        listed, list_error = self._task_lists.latest(key)
        if listed is not None:
            counts = (listed, *counts)
            polled = replace(polled, observed_at=max(polled.observed_at, self._task_lists.answered_at(key)))
        error = list_error or error
        preflight = self._preflight.problem(key)
        if metrics is None and not counts and metrics_error is None and error is None and preflight is None:
            return polled
        error = polled.error or metrics_error or error
        return replace(polled, metrics=metrics, counts=counts, error=error, preflight=preflight)

    def stop_polls(self, key: Key) -> None:
        """Open no more polls: a task that a poll returns could not be recorded. Counting takes no task and goes on."""
        self._sentinels.forget(key)

    def withdraw(self, key: Key, *, deleted: bool) -> None:
        """Open no more polls. The leases of a deleted pool are failed, because its UID is no longer in the store."""
        self._sentinels.forget(key)
        self._metrics.order(key, None)
        self._preflight.order(key, None)
        self._counted_sources.withdraw(key)
        self._task_lists.order(key, None)
        if deleted:
            self._leases.set_policy(key, None)
            self._leases.check_all()


class AuthenticatedRegistry(WorkerRegistry):
    """The registry, and whether reports can be authenticated at all."""

    authenticator: Authenticator

    @property
    def authentication_problem(self) -> str:
        """Why reports cannot be authenticated now, or ""."""
        return self.authenticator.problem


class Components:
    """The components as the process runs them: they listen, begin and end terms, and stop."""

    def __init__(
        self,
        services: ClusterServices,
        *,
        reports: AuthenticatedRegistry,
        server: ReportServer,
        certificates: CertificateManager,
        leases: LeaseManager,
        sentinels: Sentinels,
        metrics: MetricPoller,
        preflight: ActivityPreflight,
        counted_sources: CountedSources,
        task_lists: TaskListPoller,
        stepfunctions: StepFunctions,
        swf: Swf,
        cloudwatch: CloudWatchReader,
    ) -> None:
        self._services = services
        self.reports = reports
        self.server = server
        self.certificates = certificates
        self.leases = leases
        self.sentinels = sentinels
        self.metrics = metrics
        self.preflight = preflight
        self.counted_sources = counted_sources
        self.task_lists = task_lists
        self._stepfunctions = stepfunctions
        self._swf = swf
        self._cloudwatch = cloudwatch
        self.sources = PoolSources(
            sentinels, metrics, preflight, counted_sources, task_lists, leases, services.settings.cluster_name
        )
        self._restoring: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self.ready = False

    async def start(self) -> None:
        """Listen for reports as soon as there is a certificate; until then a leader receives no reports."""
        self._renewing = asyncio.create_task(self._listen())
        self._renewing.add_done_callback(self._listening_ended)

    def _listening_ended(self, listening: asyncio.Task[None]) -> None:
        """End the process if it cannot listen for reports, so that the kubelet or the standby tries again."""
        if not listening.cancelled() and (error := listening.exception()) is not None:
            self._services.fail(f"listening for reports on port {self._services.settings.report_port} failed: {error}")

    async def _listen(self) -> None:
        await self.certificates.ensured()
        settings = self._services.settings
        await self.server.start(settings.report_host, settings.report_port, self.certificates.context)
        await self.certificates.run()

    def begin_term(self, now: float, expected_workers: int) -> None:
        """Drop the reports of earlier terms. The leases are read once the store is filled."""
        self.ready = False
        self.reports.begin_term(now, expected_workers)
        self.certificates.forget()

    async def prepare(self, namespace: str) -> None:
        """Put the CA bundle where the namespace's workers mount it."""
        if self._services.elector.leading:
            await self.certificates.publish(namespace)

    def store_filled(self) -> None:
        """Read the leases that a former leader left, once a term, then let pools be decided on."""
        # A task that is cancelled before it runs cannot reset `_restoring` itself.
        if not self.ready and (self._restoring is None or self._restoring.done()):
            self._restoring = asyncio.create_task(self._restore())

    async def _restore(self) -> None:
        try:
            await self.leases.begin_term()
        except Exception as error:
            # Otherwise this process would lead, decide nothing, and report no error. The error is logged here, because
            # this task is not awaited: asyncio would log it at a later garbage collection, within any code.
            log.exception("the leases of the former leader cannot be read")
            self._services.fail(f"the leases of the former leader cannot be read: {error!r}")
            return
        self.ready = True
        self._services.enqueue_all()

    def end_term(self) -> None:
        """Open no more polls and make no decision. Open polls go on, and the tasks that they return are recorded."""
        self.ready = False
        if self._restoring is not None:
            self._restoring.cancel()
            self._restoring = None
        self.sentinels.pause()
        self.metrics.pause()
        self.preflight.pause()
        self.counted_sources.pause()
        self.task_lists.pause()
        self.leases.end_term()

    async def close_polls(self, timeout_seconds: float) -> None:
        """Wait for open polls (`timeout_seconds`) and then for the records of their tasks (`LAST_RECORDS_SECONDS`)."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_seconds
        still_open = await self.sentinels.stop(timeout_seconds)
        unrecorded = await self.leases.close(max(end - loop.time(), LAST_RECORDS_SECONDS))
        if still_open or unrecorded:
            log.error("ending with %d open polls and %d leases that are not recorded", still_open, unrecorded)

    async def stop(self) -> None:
        """Stop listening, and close the clients."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        await self.server.stop()
        await self.metrics.stop()
        await self.preflight.stop()
        await self.counted_sources.stop()
        await self.task_lists.stop()
        await self._stepfunctions.close()
        await self._swf.close()
        await self._cloudwatch.close()
