"""The reply to one report."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from activity_operator.reports.handler import ReportHandler
from activity_operator.reports.worker_registry import WorkerRegistry
from activity_worker.contract import Directive, Reply, WorkerState
from tests.unit.activity_operator.leases.shared_state import Operator, SharedState
from tests.unit.activity_operator.reports.builders import event, report
from tests.unit.activity_operator.virtual_time import wall


@pytest.fixture
async def operator() -> AsyncIterator[Operator]:
    operator = await Operator.leading(SharedState())
    yield operator
    await operator.kill()


@pytest.fixture
def registry() -> WorkerRegistry:
    registry = WorkerRegistry(lambda *_: None, rate=1.0, jitter=lambda: 0.0)
    registry.set_directives("media", "resize", {})
    return registry


@pytest.fixture
def handler(operator: Operator, registry: WorkerRegistry) -> ReportHandler:
    return ReportHandler(registry, operator.handover, term=lambda: 7, now=wall)


async def test_reply_carries_term_interval_directive_and_acknowledgement(
    handler: ReportHandler, registry: WorkerRegistry
) -> None:
    registry.set_directives("media", "resize", {"uid-a": Directive.DRAIN})
    reply = await handler.answer(report(events=(event(3),)))

    assert (reply.term, reply.next_report_seconds, reply.directive, reply.ack) == (7, 1.0, Directive.DRAIN, 3)


async def test_reply_to_a_first_report_offers_waiting_tasks_and_hurries_the_next(
    handler: ReportHandler, operator: Operator
) -> None:
    for number in range(20):
        await handler.answer(report(pool="other", pod_uid=f"uid-{number}"))
    (lease,) = await operator.hold("t1")
    reply = await handler.answer(report())

    assert reply.offers == (lease,)
    assert reply.next_report_seconds < 3.0


async def test_cordoned_worker_is_offered_nothing(
    handler: ReportHandler, operator: Operator, registry: WorkerRegistry
) -> None:
    await operator.hold("t1")
    registry.set_directives("media", "resize", {"uid-a": Directive.DRAIN})

    assert (await handler.answer(report())).offers == ()


async def test_replayed_report_claims_nothing(handler: ReportHandler, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await handler.answer(report(sequence=5))

    assert (await handler.answer(report(sequence=4, claims=(lease,)))).granted == ()


async def test_directive_set_during_the_claims_write_is_in_the_reply(
    handler: ReportHandler, operator: Operator, registry: WorkerRegistry
) -> None:
    (lease,) = await operator.hold("t1")
    answering = asyncio.create_task(handler.answer(report(claims=(lease,))))
    await asyncio.sleep(0.005)
    registry.set_directives("media", "resize", {"uid-a": Directive.DRAIN})

    assert (await answering).directive is Directive.DRAIN


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        (WorkerState.STARTING, "run"),
        (WorkerState.RUNNING, "run"),
        (WorkerState.DRAINING, "drain"),
        (WorkerState.DRAINED, "drain"),
        (WorkerState.STOPPING, "drain"),
    ],
)
async def test_new_leader_keeps_a_workers_state_until_it_decides(
    handler: ReportHandler, registry: WorkerRegistry, state: WorkerState, kept: str
) -> None:
    """Workers up to version 0.1 know the words run and drain only, and read any other word as run."""
    registry.set_directives("media", "resize", {"uid-a": Directive.DRAIN})
    registry.begin_term(100.0, expected_workers=1)
    reply = await handler.answer(report(state=state))

    assert reply.to_wire()["directive"] == kept


async def test_first_decision_of_a_new_leader_takes_a_drain_back(
    handler: ReportHandler, registry: WorkerRegistry
) -> None:
    registry.begin_term(100.0, expected_workers=1)
    registry.set_directives("media", "resize", {"uid-a": Directive.RUN})

    assert (await handler.answer(report(state=WorkerState.DRAINING))).directive is Directive.RUN


async def test_new_leader_offers_no_task_before_its_first_decision(
    handler: ReportHandler, operator: Operator, registry: WorkerRegistry
) -> None:
    """The pool may be paused: a paused pool keeps its waiting tasks until it resumes."""
    (lease,) = await operator.hold("t1")
    registry.begin_term(100.0, expected_workers=1)
    assert (await handler.answer(report())).offers == ()

    registry.set_directives("media", "resize", {"uid-a": Directive.RUN})
    assert (await handler.answer(report(sequence=2))).offers == (lease,)


async def test_workers_of_a_deleted_pool_keep_draining(handler: ReportHandler, registry: WorkerRegistry) -> None:
    registry.forget_pool("media", "resize")

    assert (await handler.answer(report(state=WorkerState.DRAINING))).directive is Directive.DRAIN


@pytest.mark.parametrize("directive", ["keep", "rest", ""])
def test_worker_reads_an_unknown_directive_as_keep(directive: str) -> None:
    wire = Reply(term=1, next_report_seconds=1.0).to_wire() | {"directive": directive}

    assert Reply.from_wire(wire).directive is Directive.KEEP
