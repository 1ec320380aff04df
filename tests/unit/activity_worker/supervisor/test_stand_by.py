"""A worker that stands by: it claims leases and opens no poll, and polls again if the operator is gone."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from activity_worker.contract import Directive, LeasedTask, Reply, Report, WorkerState
from activity_worker.sources.memory import MemorySource
from activity_worker.supervisor.stand_by import RESUME_SECONDS
from tests.unit.activity_worker.supervisor.test_last_report import Operator, PlayedWorker, leased_by_operator


class PolledSource(MemorySource):
    """Counts the polls of slots. A poll without a task ends after a minute."""

    def __init__(self) -> None:
        super().__init__()
        self.polls = 0

    async def lease(self, worker_name: str) -> LeasedTask | None:
        self.polls += worker_name != "operator"
        return await super().lease(worker_name)


class StandByHarness:
    """A worker that its operator has told to stand by."""

    def __init__(self) -> None:
        self.source, self.operator = PolledSource(), Operator()
        self.operator.may_answer.set()
        self.worker = PlayedWorker(self.source, self.operator)
        self.order(Directive.STANDBY)

    def order(self, directive: Directive) -> None:
        self.operator.answer = lambda report: Reply(1, 1.0, directive, released=report.released)


@pytest.fixture
async def harness() -> AsyncIterator[StandByHarness]:
    harness = StandByHarness()
    running = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(3.0)
    yield harness
    harness.order(Directive.RUN)
    harness.worker.request_stop()
    await running


async def test_worker_told_to_stand_by_at_its_start_is_running_and_opens_no_poll(harness: StandByHarness) -> None:
    assert (harness.worker.state, harness.source.polls) == (WorkerState.RUNNING, 0)
    assert harness.operator.reports[-1].open_polls == 0


async def test_worker_polls_again_once_it_is_told_to_run(harness: StandByHarness) -> None:
    harness.order(Directive.RUN)
    await asyncio.sleep(2.0)

    assert harness.source.polls == 1


async def test_open_poll_is_the_last_one_after_the_order_to_stand_by(harness: StandByHarness) -> None:
    harness.order(Directive.RUN)
    await asyncio.sleep(2.0)
    harness.order(Directive.STANDBY)
    await asyncio.sleep(90.0)

    assert (harness.source.polls, harness.operator.reports[-1].open_polls) == (1, 0)


async def test_worker_that_stands_by_claims_and_runs_a_lease(harness: StandByHarness) -> None:
    grant = await leased_by_operator(harness.source)

    waiting = [grant]

    def answer(report: Report) -> Reply:
        granted = tuple(waiting.pop() for _ in report.claims if waiting)
        offers = tuple(one.id for one in waiting)
        return Reply(1, 1.0, Directive.STANDBY, offers=offers, granted=granted, released=report.released)

    harness.operator.answer = answer
    await asyncio.sleep(3.0)

    assert (harness.worker.handled, harness.source.polls) == ([grant.task_token], 0)


async def test_worker_without_its_operator_polls_again_after_a_bounded_time(harness: StandByHarness) -> None:
    def fail(_: Report) -> Reply:
        raise OSError("no route to the operator")

    harness.operator.answer = fail
    await asyncio.sleep(RESUME_SECONDS - 2.0)
    assert harness.source.polls == 0

    await asyncio.sleep(3.0)
    assert harness.source.polls == 1


async def test_order_to_keep_the_state_does_not_prolong_standing_by(harness: StandByHarness) -> None:
    harness.order(Directive.KEEP)
    await asyncio.sleep(RESUME_SECONDS + 1.0)

    assert harness.source.polls == 1


async def test_worker_that_stands_by_is_drained_at_once(harness: StandByHarness) -> None:
    harness.order(Directive.DRAIN)
    await asyncio.sleep(2.0)

    assert (harness.worker.state, harness.source.polls) == (WorkerState.DRAINED, 0)
