"""The reply to one report."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from activity_operator.reports.handler import ReportHandler
from activity_operator.reports.worker_registry import WorkerRegistry
from activity_worker.contract import Directive
from tests.unit.activity_operator.leases.world import Operator, World
from tests.unit.activity_operator.reports.builders import event, report
from tests.unit.activity_operator.virtual_time import wall


@pytest.fixture
async def operator() -> AsyncIterator[Operator]:
    operator = await Operator.leading(World())
    yield operator
    await operator.kill()


@pytest.fixture
def registry() -> WorkerRegistry:
    return WorkerRegistry(lambda *_: None, rate=1.0, jitter=lambda: 0.0)


@pytest.fixture
def reception(operator: Operator, registry: WorkerRegistry) -> ReportHandler:
    return ReportHandler(registry, operator.handover, term=lambda: 7, now=wall)


async def test_reply_carries_term_interval_directive_and_acknowledgement(
    reception: ReportHandler, registry: WorkerRegistry
) -> None:
    registry.set_directives("media", "resize", {"uid-a": Directive.DRAIN})
    reply = await reception.answer(report(events=(event(3),)))

    assert (reply.term, reply.next_report_seconds, reply.directive, reply.ack) == (7, 2.0, Directive.DRAIN, 3)


async def test_reply_to_a_first_report_offers_waiting_tasks_and_hurries_the_next(
    reception: ReportHandler, operator: Operator
) -> None:
    for number in range(20):
        await reception.answer(report(pool="other", pod_uid=f"uid-{number}"))
    (lease,) = await operator.hold("t1")
    reply = await reception.answer(report())

    assert reply.offers == (lease,)
    assert reply.next_report_seconds < 3.0


async def test_cordoned_worker_is_offered_nothing(
    reception: ReportHandler, operator: Operator, registry: WorkerRegistry
) -> None:
    await operator.hold("t1")
    registry.set_directives("media", "resize", {"uid-a": Directive.DRAIN})

    assert (await reception.answer(report())).offers == ()


async def test_replayed_report_claims_nothing(reception: ReportHandler, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await reception.answer(report(sequence=5))

    assert (await reception.answer(report(sequence=4, claims=(lease,)))).granted == ()


async def test_directive_set_during_the_claims_write_is_in_the_reply(
    reception: ReportHandler, operator: Operator, registry: WorkerRegistry
) -> None:
    (lease,) = await operator.hold("t1")
    answering = asyncio.create_task(reception.answer(report(claims=(lease,))))
    await asyncio.sleep(0.005)
    registry.set_directives("media", "resize", {"uid-a": Directive.DRAIN})

    assert (await answering).directive is Directive.DRAIN
