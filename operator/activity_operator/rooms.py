"""The rooms besides the cluster's, put together: who reports, what is polled, which leases the operator holds."""

import asyncio
import logging
import time
from dataclasses import replace
from functools import partial

from activity_operator.api.spec import PoolSpec
from activity_operator.backlog.activity_counts import ActivityCounts
from activity_operator.backlog.cloudwatch import CloudWatch
from activity_operator.backlog.protocol import PollTarget
from activity_operator.backlog.sentinel import Sentinels
from activity_operator.backlog.stepfunctions import StepFunctions
from activity_operator.cluster.kinds import PODS, POOLS, SECRETS, Key
from activity_operator.cluster.lease_records import LeaseSecrets
from activity_operator.cluster.ports import Brain
from activity_operator.cluster.secret_values import SecretValues
from activity_operator.core.decision import SentinelOrder
from activity_operator.core.observation import SourceFacts
from activity_operator.counted_signals import CountedSignals
from activity_operator.process import Backbone
from activity_operator.settings import Settings
from activity_operator.workers import certificates
from activity_operator.workers.authentication import Authenticator
from activity_operator.workers.certificate_keeper import CertificateKeeper
from activity_operator.workers.custody import Custody
from activity_operator.workers.handover import Handover
from activity_operator.workers.handover_state import Terms
from activity_operator.workers.leases import PoolRef
from activity_operator.workers.reception import Reception
from activity_operator.workers.registry import WorkerRegistry
from activity_operator.workers.server import ReportServer
from activity_operator.workers.surroundings import Surroundings
from activity_worker.contract import LeasedTask

#: What the records of the last polls may take when the polls themselves used up the time-out.
LAST_RECORDS_SECONDS = 10.0

log = logging.getLogger(__name__)


class PoolSignals:
    """Sentinels, counts and custody as the reconciler sees them: one order a pool, one answer."""

    def __init__(
        self,
        sentinels: Sentinels,
        counts: ActivityCounts,
        counted: CountedSignals,
        custody: Custody,
        cluster_name: str,
    ) -> None:
        self._sentinels = sentinels
        self._counts = counts
        self._counted = counted
        self._custody = custody
        self._cluster_name = cluster_name

    def order(self, key: Key, order: SentinelOrder, spec: PoolSpec, pool_uid: str) -> None:
        """Set how many polls are kept open, whether counts are read, and on which terms leases are held."""
        hold = spec.activation.hold_seconds
        heartbeat = float(spec.task_heartbeat.interval_seconds)
        terms = Terms(
            heartbeat_seconds=heartbeat, hold_seconds=None if hold is None else float(hold), paused=spec.paused
        )
        self._custody.order(key, terms)
        self._counted.order(key, order, spec)
        if spec.source_kind != "stepFunctions":
            self._sentinels.forget(key)
            self._counts.order(key, None)
            return
        target = self.target(key, spec)
        self._sentinels.order(key, order, target, pool_uid)
        counted = replace(target, endpoint_url=spec.aws.cloud_watch_endpoint_url or "")
        self._counts.order(key, counted if order.counts else None)

    def target(self, key: Key, spec: PoolSpec) -> PollTarget:
        """Return where the pool's tasks are; a role is assumed with an external id that names cluster and namespace."""
        role = spec.aws.role_arn or ""
        return PollTarget(
            arn=spec.arn,
            region=spec.region,
            endpoint_url=spec.aws.endpoint_url or "",
            role_arn=role,
            external_id=f"{self._cluster_name}/{key[0]}" if role else "",
        )

    def said(self, key: Key) -> SourceFacts:
        """Return what is known of the pool's source."""
        polled = self._sentinels.said(key)
        counts, counts_error = self._counts.said(key)
        signals, error = self._counted.said(key)
        if counts is None and not signals and counts_error is None and error is None:
            return polled
        return replace(polled, counts=counts, signals=signals, error=polled.error or counts_error or error)

    def withdraw(self, key: Key, *, deleted: bool) -> None:
        """Open no more polls; what is held for a deleted pool is failed, since its UID is in the store no more."""
        self._sentinels.forget(key)
        self._counts.order(key, None)
        self._counted.withdraw(key)
        if deleted:
            self._custody.order(key, None)
            self._custody.sweep()


class WorkerReports(WorkerRegistry):
    """The registry, and whether reports can be authenticated at all."""

    authenticator: Authenticator

    @property
    def trouble(self) -> str:
        """Why reports cannot be authenticated now, or ""."""
        return self.authenticator.trouble


class AllRooms:
    """What `Process` calls the outside. The services' calls are counted from here on."""

    def __init__(
        self, brain: Brain, backbone: Backbone, service: StepFunctions, counter: CloudWatch | None = None
    ) -> None:
        self._backbone = backbone
        self._service = service
        self._counter = counter or CloudWatch()
        self._service.observed = partial(backbone.metrics.called, "stepfunctions")
        self._counter.observed = partial(backbone.metrics.called, "cloudwatch")
        self.brain = brain
        self.reports = WorkerReports(
            lambda namespace, pool: backbone.look_at((namespace, pool)), rate=backbone.settings.report_rate
        )
        self.reports.authenticator = Authenticator(
            backbone.kube.create_token_review, now=backbone.now, on_trouble=backbone.look_at_all
        )
        store = backbone.store
        around = Surroundings(
            now=backbone.now,
            pool_exists=lambda uid: store.by_uid(POOLS, uid) is not None,
            pod_exists=lambda uid: store.by_uid(PODS, uid) is not None,
            on_change=self._leases_changed,
            say=backbone.say,
            leads=lambda: backbone.elector.leading,
        )
        records = LeaseSecrets(backbone.kube, backbone.settings.namespace, lambda: backbone.elector.leading)
        self.custody = Custody(records, service, around)
        self.sentinels = Sentinels(
            service, holdings=self.custody.said, on_task=self._receive, on_change=backbone.look_at, now=backbone.now
        )
        self.counts = ActivityCounts(self._counter, on_change=backbone.look_at, now=backbone.now, wall=time.time)
        secrets = SecretValues(partial(backbone.kube.get, SECRETS), on_change=backbone.look_at)
        self.counted = CountedSignals(
            secrets,
            backbone.policy,
            on_change=backbone.look_at,
            called=backbone.metrics.called,
            now=backbone.now,
            redis_seconds=backbone.settings.redis_count_seconds,
        )
        name = backbone.settings.cluster_name
        self.signals = PoolSignals(self.sentinels, self.counts, self.counted, self.custody, name)
        self._restoring: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self.ready = False
        self.keeper = CertificateKeeper(
            backbone.kube,
            backbone.settings.namespace,
            report_names(backbone.settings),
            now=backbone.now,
            on_bundle=backbone.look_at_all,
        )
        handover = Handover(self.custody)
        reception = Reception(self.reports, handover, term=lambda: backbone.elector.term, now=backbone.now)
        self.server = ReportServer(
            self.reports.authenticator,
            reception,
            leading=lambda: backbone.elector.leading and self.ready,
            member=backbone.members.member,
            observed=lambda status: backbone.metrics.requested("reports", "report", status),
        )

    def _receive(self, key: Key, pool_uid: str, target: PollTarget, task: LeasedTask) -> None:
        """A task came to an empty pool: into custody first, then the pool is looked at before all others."""
        self.custody.receive(PoolRef(*key, pool_uid), target, task)
        self._backbone.look_at_once(key)

    def _leases_changed(self, key: Key) -> None:
        self.sentinels.leases_changed(key)
        self._backbone.look_at(key)

    async def start(self) -> None:
        """Listen for reports as soon as there is a certificate; until then the process leads without hearing."""
        self._renewing = asyncio.create_task(self._listen())
        self._renewing.add_done_callback(self._deaf)

    def _deaf(self, listening: asyncio.Task[None]) -> None:
        """Without the report port no worker is heard: end, and let the kubelet or the standby try again."""
        if not listening.cancelled() and (error := listening.exception()) is not None:
            self._backbone.fail(f"listening for reports on port {self._backbone.settings.report_port} failed: {error}")

    async def _listen(self) -> None:
        await self.keeper.ensured()
        settings = self._backbone.settings
        await self.server.start(settings.report_host, settings.report_port, self.keeper.context)
        await self.keeper.run()

    def begin_term(self, now: float, expected_workers: int) -> None:
        """Believe nothing that was said before; leases are read once the store is filled."""
        self.ready = False
        self.reports.begin_term(now, expected_workers)
        self.keeper.forget()

    async def prepare(self, namespace: str) -> None:
        """Put the CA bundle where the namespace's workers mount it."""
        if self._backbone.elector.leading:
            await self.keeper.publish(namespace)

    def store_filled(self) -> None:
        """Read the leases that a former leader left, once a term, then let pools be decided on."""
        # One that was cancelled before it ever ran could not say so itself.
        if not self.ready and (self._restoring is None or self._restoring.done()):
            self._restoring = asyncio.create_task(self._restore())

    async def _restore(self) -> None:
        try:
            await self.custody.begin_term()
        except Exception as error:
            # Nothing would be decided from here on, and nobody would be told.
            self._backbone.fail(f"what a former leader left cannot be taken over: {error!r}")
            raise
        self.ready = True
        self._backbone.look_at_all()

    def end_term(self) -> None:
        """Open no polls, decide nothing; open polls go on and what they bring is recorded."""
        self.ready = False
        if self._restoring is not None:
            self._restoring.cancel()
            self._restoring = None
        self.sentinels.pause()
        self.counts.pause()
        self.counted.pause()
        self.custody.end_term()

    async def close_polls(self, timeout_seconds: float) -> None:
        """Await open polls and the records of what they brought, in one time-out and the last records' few seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_seconds
        still_open = await self.sentinels.stop(timeout_seconds)
        unrecorded = await self.custody.close(max(end - loop.time(), LAST_RECORDS_SECONDS))
        if still_open or unrecorded:
            log.error("ending with %d open polls and %d leases that are not recorded", still_open, unrecorded)

    async def stop(self) -> None:
        """Listen no more."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        await self.server.stop()
        await self.counts.stop()
        await self.counted.stop()
        await self._service.close()
        await self._counter.close()


def report_names(settings: Settings) -> tuple[str, ...]:
    """Return the names by which workers reach the report server: the Service's, short to full."""
    return certificates.report_names(settings.report_service, settings.namespace)
