"""The report loop with an operator over real connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from activity_worker.config.settings import ReportSettings
from activity_worker.contract import Directive, ExitOutput, Reply, WorkerState
from activity_worker.supervisor import reporter as reporter_module
from activity_worker.supervisor.metrics import WorkerMetrics
from activity_worker.supervisor.report_state import Instructions, PodIdentity, ReportState, WorkerSnapshot
from activity_worker.supervisor.reporter import Reporter

from .fake_operator import FakeOperator, make_authority


@dataclass
class Bench:
    """A reporter, the worker's state that it reports, and the directives that it got."""

    seen: WorkerSnapshot = field(default_factory=lambda: WorkerSnapshot(WorkerState.STARTING))
    instructions: list[Instructions] = field(default_factory=list)
    reporter: Reporter | None = None

    def show(self, snapshot: WorkerSnapshot) -> None:
        """Change the worker's state."""
        assert self.reporter is not None
        self.seen = snapshot
        self.reporter.changed()


@pytest.fixture
async def operator() -> AsyncIterator[FakeOperator]:
    operator = FakeOperator()
    yield operator
    await operator.stop()


@contextlib.asynccontextmanager
async def reporting(url: str, token: Path | None = None, ca: Path | None = None) -> AsyncIterator[Bench]:
    bench = Bench()
    settings = ReportSettings(url, token, ca, namespace="shop", pool="resize", pod_name="pod", pod_uid="uid")
    state = ReportState(PodIdentity("shop", "resize", "pod", "uid", "one", slots=2))
    reporter = Reporter(settings, state, lambda: bench.seen, bench.instructions.append, WorkerMetrics("test", 2))
    bench.reporter = reporter
    running = asyncio.create_task(reporter.run())
    try:
        yield bench
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_reports_share_one_connection_one_at_a_time(operator: FakeOperator) -> None:
    await operator.start()
    async with reporting(f"http://127.0.0.1:{operator.port}") as bench:
        for number in range(20):
            bench.show(WorkerSnapshot(WorkerState.RUNNING, busy=number % 3))
            await operator.further()

    assert (operator.most_in_flight, len(operator.connections)) == (1, 1)
    assert [report.sequence for report in operator.reports] == list(range(1, len(operator.reports) + 1))


async def test_drain_is_applied_and_drained_is_reported_at_once(operator: FakeOperator) -> None:
    operator.answer = lambda _: Reply(term=1, next_report_seconds=600.0, directive=Directive.DRAIN)
    await operator.start()
    async with reporting(f"http://127.0.0.1:{operator.port}") as bench:
        await operator.further()
        bench.show(WorkerSnapshot(WorkerState.DRAINED))
        await operator.report_with(lambda report: report.state is WorkerState.DRAINED)

    assert bench.instructions[0].directive is Directive.DRAIN


async def test_reporter_leaves_a_standby_and_finds_the_leader(operator: FakeOperator) -> None:
    operator.answers.extend([lambda _: web.Response(status=421)] * 2)
    await operator.start()
    async with reporting(f"http://127.0.0.1:{operator.port}"):
        await operator.further(3)

    assert len(operator.connections) >= 3


async def test_refused_report_is_repeated(operator: FakeOperator) -> None:
    operator.answers.append(lambda _: web.Response(status=503, text="not yet"))
    await operator.start()
    async with reporting(f"http://127.0.0.1:{operator.port}") as bench:
        assert bench.reporter is not None
        await bench.reporter.first_answer()

    assert [report.sequence for report in operator.reports][:2] == [1, 2]


async def test_silent_operator_does_not_block_the_worker(
    monkeypatch: pytest.MonkeyPatch, operator: FakeOperator
) -> None:
    monkeypatch.setattr(reporter_module, "SILENCE_SECONDS", 0.05)
    await operator.start()
    port = operator.port
    await operator.stop()
    async with reporting(f"http://127.0.0.1:{port}") as bench:
        assert bench.reporter is not None
        await bench.reporter.first_answer()


async def test_token_is_read_for_every_report(tmp_path: Path, operator: FakeOperator) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    await operator.start()
    async with reporting(f"http://127.0.0.1:{operator.port}", token=token):
        await operator.further()
        token.write_text("second\n")
        await operator.further(2)

    assert (operator.tokens[0], operator.tokens[-1]) == ("Bearer first", "Bearer second")


async def test_operator_with_an_untrusted_certificate_gets_no_report(
    tmp_path: Path, operator: FakeOperator, caplog: pytest.LogCaptureFixture
) -> None:
    _, stranger = make_authority(tmp_path / "stranger", "stranger")
    ca, _ = make_authority(tmp_path / "ours", "ours")
    await operator.start(tls=stranger)
    async with reporting(f"https://127.0.0.1:{operator.port}", ca=ca) as bench:
        assert bench.reporter is not None
        await bench.reporter.first_answer()

    assert operator.reports == []
    assert "certificate verify failed" in caplog.text.lower()


async def test_renewed_ca_is_trusted_without_a_restart(tmp_path: Path, operator: FakeOperator) -> None:
    ca, _ = make_authority(tmp_path / "old", "old")
    new_ca, new_server = make_authority(tmp_path / "new", "new")
    await operator.start(tls=new_server)
    async with reporting(f"https://127.0.0.1:{operator.port}", ca=ca):
        ca.write_bytes(ca.read_bytes() + new_ca.read_bytes())
        await operator.further()

    assert operator.reports


async def test_last_report_is_delivered_before_the_process_ends(operator: FakeOperator) -> None:
    operator.answer = lambda _: Reply(term=1, next_report_seconds=600.0)
    await operator.start()
    async with reporting(f"http://127.0.0.1:{operator.port}") as bench:
        assert bench.reporter is not None
        await operator.further()
        bench.show(WorkerSnapshot(WorkerState.STOPPED, exit=ExitOutput(10, "AccessDenied")))
        await bench.reporter.send_last_report()

    assert (operator.reports[-1].state, operator.reports[-1].exit) == (
        WorkerState.STOPPED,
        ExitOutput(10, "AccessDenied"),
    )
