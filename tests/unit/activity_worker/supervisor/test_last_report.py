"""A worker's last report, and grants that arrive with the reply."""

import asyncio
from collections.abc import Callable

from activity_worker.activity import TaskRequest
from activity_worker.config.settings import ReportSettings, WorkerSettings
from activity_worker.config.sources import StepFunctionsSettings
from activity_worker.contract import (
    ERROR_WORKER_STOPPED,
    GRACE_MARGIN_SECONDS,
    Grant,
    LeasedTask,
    Reply,
    Report,
    WorkerState,
    lease_id,
)
from activity_worker.errors import UnreachableError
from activity_worker.runtime.inline_runner import InlineRunner
from activity_worker.sources.memory import MemorySource
from activity_worker.supervisor.reporter import Reporter
from activity_worker.supervisor.supervisor import Supervisor

SETTINGS = WorkerSettings(
    source=StepFunctionsSettings("arn:activity"),
    drain_timeout_seconds=0.0,
    report=ReportSettings("http://operator", None, None, "shop", "resize", "pod", "uid"),
)


class Operator:
    """Answers reports; a report with claims is answered only after the test sets `may_answer`."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.answer: Callable[[Report], Reply] = lambda _: Reply(term=1, next_report_seconds=600.0)
        self.claimed = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def exchange(self, report: Report) -> Reply:
        self.reports.append(report)
        if report.claims:
            self.claimed.set()
            await self.may_answer.wait()
        return self.answer(report)


class AwaySource(MemorySource):
    """A source that takes no failure until a time of the event loop."""

    away_until = 0.0

    async def fail(self, token: str, error: str, cause: str) -> None:
        if asyncio.get_running_loop().time() < self.away_until:
            raise UnreachableError("ConnectionRefused")
        await super().fail(token, error, cause)


class SilentSource(MemorySource):
    """A source whose polls never end."""

    async def lease(self, worker_name: str) -> LeasedTask | None:
        return await asyncio.Future()


class PlayedWorker(Supervisor):
    """A worker that reports to an `Operator` object and runs its handler in this process."""

    def __init__(self, source: MemorySource, operator: Operator) -> None:
        self._operator = operator
        self.handled: list[str] = []
        self.hold = False
        super().__init__(SETTINGS, source)
        self._slot_pool._runner_factory = lambda: InlineRunner(self._handle)

    async def _handle(self, request: TaskRequest) -> None:
        self.handled.append(request.task.token)
        if self.hold:
            await asyncio.Event().wait()

    def _make_reporter(self, settings: ReportSettings | None) -> Reporter:
        assert settings is not None
        operator = self._operator

        class PlayedReporter(Reporter):
            async def _exchange(self, report: Report) -> Reply | None:
                return await operator.exchange(report)

        return PlayedReporter(settings, self._reports, self._snapshot, self._follow, self.metrics)


async def leased_by_operator(source: MemorySource) -> Grant:
    source.put("{}", "token-a")
    task = await source.lease("operator")
    assert task is not None
    return Grant(lease_id(task.token), task.token, task.input)


async def test_claim_granted_after_the_stop_is_failed_and_released() -> None:
    source, operator = MemorySource(), Operator()
    grant = await leased_by_operator(source)
    operator.answer = lambda _: Reply(term=1, next_report_seconds=600.0, offers=(grant.id,))
    worker = PlayedWorker(source, operator)
    running = asyncio.create_task(worker.run())
    await operator.claimed.wait()

    worker.request_stop()
    await asyncio.sleep(1.0)
    assert worker.state is WorkerState.STOPPED
    operator.answer = lambda report: Reply(
        term=1,
        next_report_seconds=600.0,
        granted=(grant,) if grant.id in report.claims else (),
        released=report.released,
    )
    operator.may_answer.set()
    assert await running == 0

    assert (worker.handled, source.conclusions[grant.task_token].error) == ([], ERROR_WORKER_STOPPED)
    assert operator.reports[-1].released == (grant.id,)


async def test_last_report_of_a_worker_claims_nothing() -> None:
    source, operator = MemorySource(), Operator()
    operator.answer = lambda _: Reply(term=1, next_report_seconds=600.0, offers=("a",))
    operator.may_answer.set()
    worker = PlayedWorker(source, operator)
    running = asyncio.create_task(worker.run())
    await operator.claimed.wait()
    worker.request_stop()
    await running

    last = operator.reports[-1]
    assert (last.state, last.claims) == (WorkerState.STOPPED, ())


async def test_last_report_follows_a_conclusion_that_took_a_minute() -> None:
    source, operator = AwaySource(), Operator()
    operator.may_answer.set()
    worker = PlayedWorker(source, operator)
    worker.hold = True
    token = source.put("{}")
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(30.0)
    assert worker.handled == [token]
    source.away_until = 30.0 + 60.0
    worker.request_stop()
    await running

    assert source.conclusions[token].error == ERROR_WORKER_STOPPED
    assert (operator.reports[-1].state, operator.reports[-1].leases) == (WorkerState.STOPPED, ())
    assert asyncio.get_running_loop().time() <= 30.0 + GRACE_MARGIN_SECONDS


async def test_poll_without_an_end_is_given_up_in_time_for_the_last_report() -> None:
    """The worker waited for it until the kubelet killed it, without a last report."""
    operator = Operator()
    operator.may_answer.set()
    worker = PlayedWorker(SilentSource(), operator)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(5.0)
    worker.request_stop()
    async with asyncio.timeout(GRACE_MARGIN_SECONDS):
        assert await running == 0
    assert operator.reports[-1].state is WorkerState.STOPPED
