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


class Scene:
    """A worker that its operator has told to stand by."""

    def __init__(self) -> None:
        self.source, self.operator = PolledSource(), Operator()
        self.operator.may_answer.set()
        self.worker = PlayedWorker(self.source, self.operator)
        self.order(Directive.STANDBY)

    def order(self, directive: Directive) -> None:
        self.operator.answer = lambda report: Reply(1, 1.0, directive, released=report.released)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    running = asyncio.create_task(scene.worker.run())
    await asyncio.sleep(3.0)
    yield scene
    scene.order(Directive.RUN)
    scene.worker.request_stop()
    await running


async def test_worker_told_to_stand_by_at_its_start_is_running_and_opens_no_poll(scene: Scene) -> None:
    assert (scene.worker.state, scene.source.polls) == (WorkerState.RUNNING, 0)
    assert scene.operator.reports[-1].open_polls == 0


async def test_worker_polls_again_once_it_is_told_to_run(scene: Scene) -> None:
    scene.order(Directive.RUN)
    await asyncio.sleep(2.0)

    assert scene.source.polls == 1


async def test_open_poll_is_the_last_one_after_the_order_to_stand_by(scene: Scene) -> None:
    scene.order(Directive.RUN)
    await asyncio.sleep(2.0)
    scene.order(Directive.STANDBY)
    await asyncio.sleep(90.0)

    assert (scene.source.polls, scene.operator.reports[-1].open_polls) == (1, 0)


async def test_worker_that_stands_by_claims_and_runs_a_lease(scene: Scene) -> None:
    grant = await leased_by_operator(scene.source)

    waiting = [grant]

    def answer(report: Report) -> Reply:
        granted = tuple(waiting.pop() for _ in report.claims if waiting)
        offers = tuple(one.id for one in waiting)
        return Reply(1, 1.0, Directive.STANDBY, offers=offers, granted=granted, released=report.released)

    scene.operator.answer = answer
    await asyncio.sleep(3.0)

    assert (scene.worker.handled, scene.source.polls) == ([grant.task_token], 0)


async def test_worker_without_its_operator_polls_again_after_a_bounded_time(scene: Scene) -> None:
    def fail(_: Report) -> Reply:
        raise OSError("no route to the operator")

    scene.operator.answer = fail
    await asyncio.sleep(RESUME_SECONDS - 2.0)
    assert scene.source.polls == 0

    await asyncio.sleep(3.0)
    assert scene.source.polls == 1


async def test_order_to_keep_the_state_does_not_prolong_standing_by(scene: Scene) -> None:
    scene.order(Directive.KEEP)
    await asyncio.sleep(RESUME_SECONDS + 1.0)

    assert scene.source.polls == 1


async def test_worker_that_stands_by_is_drained_at_once(scene: Scene) -> None:
    scene.order(Directive.DRAIN)
    await asyncio.sleep(2.0)

    assert (scene.worker.state, scene.source.polls) == (WorkerState.DRAINED, 0)
