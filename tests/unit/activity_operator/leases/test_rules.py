"""The choice of waiting tasks that a worker is offered."""

import asyncio
from typing import Any

import pytest

from activity_operator.leases.rules import Offers, choose_offers
from activity_worker.contract import Report, WorkerState
from tests.unit.activity_operator.leases.shared_state import POOL, Operator
from tests.unit.activity_operator.reports.builders import other, report
from tests.unit.activity_operator.virtual_time import wall

KEY = POOL.key


async def test_claimed_lease_is_never_offered_again(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    await asyncio.sleep(60.0)

    assert (await operator.answer(other())).offers == ()


def choose(operator: Operator, of: Report, **options: Any) -> Offers:
    table = operator.manager.table
    return choose_offers(table.waiting(KEY), table.owned_by(KEY, of.pod_uid), of, wall(), cordoned=False, **options)


async def test_offer_is_exclusive_for_a_while_and_then_goes_to_another_worker(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    assert (await operator.answer(report())).offers == (lease,)
    assert choose(operator, other()).now == ()
    await asyncio.sleep(6.0)

    assert choose(operator, other()).now == (lease,)


async def test_offers_are_oldest_first_and_at_most_one_per_slot(
    operator: Operator,
) -> None:
    leases = await operator.hold("t1", "t2", "t3", "t4")

    assert choose(operator, report(slots=3, busy=1)) == Offers(now=tuple(leases[:2]), ahead=(leases[2],))
    assert (await operator.answer(report(slots=3, busy=1))).offers == tuple(leases[:3])
    assert choose(operator, other(slots=2)).now == tuple(leases[2:])


async def test_busy_slot_gets_a_shared_offer_for_when_it_becomes_free(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")

    assert (await operator.answer(report(slots=1, busy=1))).offers == (lease,)
    assert choose(operator, other(slots=1)).now == (lease,)


async def test_granted_lease_that_is_not_reported_yet_occupies_a_slot(operator: Operator) -> None:
    leases = await operator.hold("t1", "t2", "t3")
    handed = await operator.answer(report(slots=2, claims=(leases[0],)))

    assert [grant.id for grant in handed.granted] == [leases[0]]
    assert choose(operator, report(slots=2)) == Offers(now=(leases[1],), ahead=(leases[2],))


async def test_claim_without_an_answer_occupies_a_slot(operator: Operator) -> None:
    leases = await operator.hold("t1", "t2")

    assert choose(operator, report(slots=1), unclear=[leases[0]]) == Offers(ahead=(leases[1],))


@pytest.mark.parametrize("state", [WorkerState.DRAINING, WorkerState.DRAINED, WorkerState.STOPPING])
async def test_leaving_worker_is_offered_nothing(operator: Operator, state: WorkerState) -> None:
    await operator.hold("t1")

    assert (await operator.answer(report(state=state))).offers == ()
    assert (await operator.answer(report(sequence=2), cordoned=True)).offers == ()


async def test_starting_worker_is_offered_leases_before_its_first_poll(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")

    assert (await operator.answer(report(state=WorkerState.STARTING))).offers == (lease,)


async def test_lease_goes_to_the_worker_that_is_free_first(operator: Operator) -> None:
    """A starting worker has the exclusive offer, and a busy one concludes its task before the other claims."""
    (lease,) = await operator.hold("t1")
    assert (await operator.answer(report(state=WorkerState.STARTING))).offers == (lease,)
    assert (await operator.answer(other(busy=1))).offers == (lease,)

    concluded = await operator.answer(other(sequence=2, claims=(lease,)))
    started = await operator.answer(report(sequence=2, claims=(lease,)))

    assert [grant.id for grant in concluded.granted] == [lease]
    assert started.refused == (lease,)
