"""The components that a task passes: the service's fake, lease records, operators and workers that report by TLS."""

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from activity_operator.backlog.protocol import PollTarget
from activity_operator.backlog.sentinel import Sentinels
from activity_operator.backlog.stepfunctions import StepFunctions
from activity_operator.core.decision import SentinelOrder
from activity_operator.workers.authentication import Identity
from activity_operator.workers.certificate_keeper import load
from activity_operator.workers.certificates import Material, Step, carry_out
from activity_operator.workers.custody import Custody
from activity_operator.workers.handover import Handover
from activity_operator.workers.handover_state import Terms
from activity_operator.workers.leases import PoolRef
from activity_operator.workers.reception import Reception
from activity_operator.workers.registry import WorkerRegistry
from activity_operator.workers.server import ReportServer
from activity_operator.workers.surroundings import Surroundings
from activity_worker.contract import Env, LeasedTask
from activity_worker.testing import StepFunctionsFake
from tests.integration.worker.process import HANDLERS, WorkerProcess, worker
from tests.servers.ports import free_port
from tests.unit.activity_operator.workers.world import Records

KEY = ("shop", "resize")
POOL = PoolRef(*KEY, "pool-1")


class OnePod:
    """Knows the token of one pod."""

    async def identify(self, authorization: str) -> Identity:
        assert authorization == "Bearer secret-token"
        return Identity("uid-1", "resize-abc", "shop")


class Operator:
    """The operator's components for reports and leases, without a cluster; it polls until a worker has reported."""

    def __init__(self, fake: StepFunctionsFake, arn: str, records: Records, term: int) -> None:
        self.target = PollTarget(arn, endpoint_url=fake.url)
        self.service = StepFunctions(f"operator-{term}")
        self.registry = WorkerRegistry(lambda *_: self.look())
        around = Surroundings(
            now=time.time, pool_exists=lambda _uid: True, pod_exists=lambda _uid: True, on_change=lambda _key: None
        )
        self.custody = Custody(records, self.service, around)
        self.custody.order(KEY, Terms(heartbeat_seconds=0.5))
        self.sentinels = Sentinels(
            self.service, holdings=self.custody.said, on_task=self.take, on_change=lambda _key: None, now=time.time
        )
        reception = Reception(self.registry, Handover(self.custody), term=lambda: term, now=time.time)
        self.server = ReportServer(OnePod(), reception, leading=lambda: self.custody.leading, member=lambda _uid: KEY)

    def take(self, key: tuple[str, str], pool_uid: str, target: PollTarget, task: LeasedTask) -> None:
        self.custody.receive(POOL, target, task)

    def look(self) -> None:
        polls = SentinelOrder() if self.registry.said(*KEY) else SentinelOrder(polls=10, take=40)
        self.sentinels.order(KEY, polls, self.target, POOL.uid)

    def held(self) -> int:
        return self.custody.said(KEY).held

    async def start(self, port: int, context: ssl.SSLContext) -> None:
        await self.custody.begin_term()
        await self.server.start("127.0.0.1", port, context)

    async def stop(self) -> None:
        self.custody.end_term()
        await self.server.stop()
        await self.sentinels.stop(5.0)
        await self.custody.close(5.0)
        await self.service.close()


class Stage:
    """The fake service, the records, and operators that use one address one after the other."""

    def __init__(self, fake: StepFunctionsFake, folder: Path) -> None:
        self.fake = fake
        self.arn = fake.create_activity("resize")
        self.records = Records()
        self.port = free_port()
        self.terms = 0
        self.folder = folder
        material = carry_out((Step.FOUND, Step.ISSUE), Material(), ["localhost"], time.time())
        assert material.serving is not None
        (folder / "ca.crt").write_text(material.bundle)
        (folder / "token").write_text("secret-token")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load(self.context, material.serving, folder)

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Operator]:
        self.terms += 1
        operator = Operator(self.fake, self.arn, self.records, self.terms)
        await operator.start(self.port, self.context)
        try:
            yield operator
        finally:
            await operator.stop()

    @asynccontextmanager
    async def worker(self, handler: str) -> AsyncIterator[WorkerProcess]:
        env = {
            Env.REPORT_URL: f"https://localhost:{self.port}",
            Env.REPORT_TOKEN_FILE: str(self.folder / "token"),
            Env.REPORT_CA_FILE: str(self.folder / "ca.crt"),
            Env.POD_NAMESPACE: "shop",
            Env.POD_NAME: "resize-abc",
            Env.POD_UID: "uid-1",
            Env.POOL: "resize",
            Env.ACTIVITY_ARN: self.arn,
            Env.ENDPOINT_URL: self.fake.url,
            Env.SLOTS: "2",
        }
        arguments = ("run", f"{HANDLERS}:{handler}")
        async with worker(*arguments, env={key.value: text for key, text in env.items()}) as running:
            yield running


def succeeded(stage: Stage) -> int:
    """Return the number of executions that have succeeded."""
    return stage.fake.counts.get("succeeded", 0)
