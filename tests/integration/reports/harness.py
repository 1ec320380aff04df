"""The components that a task passes: the service's fake, lease records, operators and workers that report by TLS."""

import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from activity_operator.backlog.protocol import PollTarget
from activity_operator.backlog.sentinel import Sentinels
from activity_operator.backlog.stepfunctions import StepFunctions
from activity_operator.backlog.swf import Swf
from activity_operator.core.decision import SentinelOrder
from activity_operator.leases.dependencies import LeaseManagerDeps
from activity_operator.leases.handover import LeaseHandover
from activity_operator.leases.manager import LeaseManager
from activity_operator.leases.model import PoolRef
from activity_operator.leases.rules import LeasePolicy
from activity_operator.reports.authentication import ReporterIdentity
from activity_operator.reports.certificate_manager import load
from activity_operator.reports.certificates import Material, RotationStep, apply_rotation
from activity_operator.reports.handler import ReportHandler
from activity_operator.reports.server import ReportServer
from activity_operator.reports.worker_registry import WorkerRegistry
from activity_worker.contract import Directive, Env, LeasedTask, Reply, Report
from activity_worker.testing import StepFunctionsFake, SwfFake
from tests.integration.worker.process import HANDLERS, WorkerProcess, worker
from tests.servers.ports import free_port
from tests.unit.activity_operator.leases.shared_state import Records

KEY = ("shop", "resize")
POOL = PoolRef(*KEY, "pool-1")


class OnePod:
    """Knows the token of one pod."""

    async def identify(self, authorization: str) -> ReporterIdentity:
        assert authorization == "Bearer secret-token"
        return ReporterIdentity("uid-1", "resize-abc", "shop")


class Operator:
    """The operator's components for reports and leases, without a cluster; it polls until a worker has reported.

    `target` replaces the activity of Step Functions, and `service` its service.
    """

    def __init__(
        self,
        fake: StepFunctionsFake | SwfFake,
        arn: str,
        records: Records,
        term: int,
        *,
        target: PollTarget | None = None,
        service: StepFunctions | Swf | None = None,
    ) -> None:
        self.target = target or PollTarget(arn, endpoint_url=fake.url)
        self.decides = True
        self.reports: list[Report] = []
        self.directive = Directive.RUN
        self.service = service or StepFunctions(f"operator-{term}")
        self.registry = WorkerRegistry(lambda *_: self.look())
        deps = LeaseManagerDeps(
            now=time.time, pool_exists=lambda _uid: True, pod_exists=lambda _uid: True, on_change=lambda _key: None
        )
        self.leases = LeaseManager(records, self.service, deps)
        self.leases.set_policy(KEY, LeasePolicy(heartbeat_seconds=0.5))
        self.sentinels = Sentinels(
            self.service, holdings=self.leases.counts, on_task=self.take, on_change=lambda _key: None, now=time.time
        )
        self.handler = ReportHandler(self.registry, LeaseHandover(self.leases), term=lambda: term, now=time.time)
        self.server = ReportServer(OnePod(), self, leading=lambda: self.leases.leading, member=lambda _uid: KEY)

    def take(self, key: tuple[str, str], pool_uid: str, target: PollTarget, task: LeasedTask) -> None:
        self.leases.receive(POOL, target, task)

    def look(self) -> None:
        polls = SentinelOrder() if self.registry.workers(*KEY) else SentinelOrder(polls=10, take=40)
        self.sentinels.order(KEY, polls, self.target, POOL.uid)
        if self.decides:
            self.registry.set_directives(*KEY, {"uid-1": self.directive})

    def held(self) -> int:
        return self.leases.counts(KEY).held

    async def answer(self, report: Report) -> Reply:
        """Answer as the operator's handler does, and keep the report for the test."""
        self.reports.append(report)
        return await self.handler.answer(report)

    async def start(self, port: int, context: ssl.SSLContext) -> None:
        await self.leases.begin_term()
        await self.server.start("127.0.0.1", port, context)

    async def stop(self) -> None:
        self.leases.end_term()
        await self.server.stop()
        await self.sentinels.stop(5.0)
        await self.leases.close(5.0)
        await self.service.close()


class ReportHarness:
    """The records, and operators that use one address one after the other; a worker reports to it."""

    def __init__(self, folder: Path) -> None:
        self.records = Records()
        self.port = free_port()
        self.terms = 0
        self.folder = folder
        material = apply_rotation((RotationStep.FOUND, RotationStep.ISSUE), Material(), ["localhost"], time.time())
        assert material.serving is not None
        (folder / "ca.crt").write_text(material.bundle)
        (folder / "token").write_text("secret-token")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load(self.context, material.serving, folder)

    @asynccontextmanager
    async def run(self, operator: Operator) -> AsyncIterator[Operator]:
        await operator.start(self.port, self.context)
        try:
            yield operator
        finally:
            await operator.stop()

    @asynccontextmanager
    async def reporting_worker(self, handler: str, source: Mapping[Env, str]) -> AsyncIterator[WorkerProcess]:
        """Start a worker with two slots and these variables of its source."""
        env = {
            Env.REPORT_URL: f"https://localhost:{self.port}",
            Env.REPORT_TOKEN_FILE: str(self.folder / "token"),
            Env.REPORT_CA_FILE: str(self.folder / "ca.crt"),
            Env.POD_NAMESPACE: "shop",
            Env.POD_NAME: "resize-abc",
            Env.POD_UID: "uid-1",
            Env.POOL: "resize",
            Env.SLOTS: "2",
            **source,
        }
        async with worker("run", handler, env={key.value: text for key, text in env.items()}) as running:
            yield running


class TaskReportHarness(ReportHarness):
    """The fake of Step Functions with one activity."""

    def __init__(self, fake: StepFunctionsFake, folder: Path) -> None:
        super().__init__(folder)
        self.fake = fake
        self.arn = fake.create_activity("resize")

    def make_operator(self, *, decides: bool = True) -> Operator:
        """Return an operator of the next term; without `decides` it answers reports before its first decision."""
        self.terms += 1
        operator = Operator(self.fake, self.arn, self.records, self.terms)
        operator.decides = decides
        return operator

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Operator]:
        async with self.run(self.make_operator()) as operator:
            yield operator

    @asynccontextmanager
    async def worker(self, handler: str) -> AsyncIterator[WorkerProcess]:
        source = {Env.ACTIVITY_ARN: self.arn, Env.ENDPOINT_URL: self.fake.url}
        async with self.reporting_worker(f"{HANDLERS}:{handler}", source) as running:
            yield running


def succeeded(harness: TaskReportHarness) -> int:
    """Return the number of executions that have succeeded."""
    return harness.fake.counts.get("succeeded", 0)
