"""A report server with a certificate of the operator's CA, on a free port of 127.0.0.1."""

import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from activity_operator.reports.authentication import RefusedError, ReporterIdentity, ReviewUnavailableError
from activity_operator.reports.certificate_manager import load
from activity_operator.reports.certificates import Material, RotationStep, apply_rotation
from activity_operator.reports.server import Limits, ReportServer
from activity_worker.contract import REPORT_PATH, Reply, Report
from activity_worker.testing import StepFunctionsFake
from tests.integration.reports.harness import TaskReportHarness
from tests.unit.activity_operator.reports.builders import report

NAME = "activity-operator-reports.activitypool-system.svc"
REPORT = report(slots=1)


class Office:
    """The handler behind the server: it knows one token and one pod, and answers every report."""

    def __init__(self) -> None:
        self.leads = True
        self.heard: list[Report] = []
        self.statuses: list[int] = []
        self.members: dict[str, tuple[str, str]] = {"uid-a": ("media", "resize")}
        self.fails: Exception | None = None

    async def identify(self, authorization: str) -> ReporterIdentity:
        if authorization == "Bearer later":
            raise ReviewUnavailableError("the token cannot be checked now")
        if authorization != "Bearer good":
            raise RefusedError("the token is not valid")
        return ReporterIdentity("uid-a", "resize-a", "media")

    async def answer(self, report: Report) -> Reply:
        if self.fails:
            raise self.fails
        self.heard.append(report)
        return Reply(term=7, next_report_seconds=1.0)


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture(scope="session")
def material() -> Material:
    now = time.time()
    return apply_rotation((RotationStep.FOUND, RotationStep.ISSUE), Material(), [NAME], now)


@pytest.fixture
def trust(material: Material) -> ssl.SSLContext:
    """A client's TLS context that trusts only our CA."""
    return ssl.create_default_context(cadata=material.bundle)


@pytest.fixture
async def start(
    office: Office, material: Material, tmp_path: Path
) -> AsyncIterator[Callable[..., Awaitable[ReportServer]]]:
    """Start servers with given limits; all are stopped at the end."""
    servers: list[ReportServer] = []

    async def start_one(**limits: float) -> ReportServer:
        server = ReportServer(
            office,
            office,
            leading=lambda: office.leads,
            member=office.members.get,
            observed=office.statuses.append,
            limits=replace(Limits(), **limits),  # type: ignore[arg-type]
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        assert material.serving is not None
        load(context, material.serving, tmp_path)
        await server.start("127.0.0.1", 0, context)
        servers.append(server)
        return server

    yield start_one
    for server in servers:
        await server.stop(1.0)


@pytest.fixture
async def client(trust: ssl.SSLContext) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=trust)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


def url(server: ReportServer, path: str = REPORT_PATH) -> str:
    """Return the server's URL; its certificate is for NAME, which clients set as server_hostname."""
    return f"https://127.0.0.1:{server.port}{path}"


@pytest.fixture
async def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TaskReportHarness]:
    """The task service and the lease records, for operators and workers one after the other."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    fake = StepFunctionsFake()
    fake.settings.poll_hold_seconds = 2.0
    async with fake:
        yield TaskReportHarness(fake, tmp_path)
