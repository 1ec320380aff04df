"""Handover of a task: it is offered, claimed, granted and released, and reaches exactly one worker."""

import asyncio

from activity_operator.backlog.protocol import LeaseTotals, PollTarget
from activity_operator.leases.model import LeaseOwner
from activity_operator.leases.table import HISTORY_SECONDS
from activity_worker.contract import HeldLease, LeasedTask, ScheduledActivity
from tests.unit.activity_operator.leases.shared_state import POOL, Operator, SharedState
from tests.unit.activity_operator.reports.builders import other, report
from tests.unit.activity_operator.virtual_time import settle, wall

KEY = POOL.key
OWNER = LeaseOwner("uid-a", "first")


async def test_lease_is_recorded_before_it_is_offered(shared: SharedState, operator: Operator) -> None:
    shared.records.stop_at = "before create"
    operator.receive("t1")
    await settle()

    assert (await operator.answer(report())).offers == ()
    assert operator.manager.counts(KEY).unrecorded == 1


async def test_lease_that_is_not_recorded_cannot_be_claimed(shared: SharedState, operator: Operator) -> None:
    shared.records.stop_at = "before create"
    lease = operator.receive("t1")
    await settle()

    assert (await operator.answer(report(claims=(lease,)))).refused == (lease,)
    assert shared.records.calls["claim"] == 0


async def test_lease_with_a_deleted_record_is_refused_and_dropped(shared: SharedState, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    shared.records.kept.clear()

    assert (await operator.answer(report(claims=(lease,)))).refused == (lease,)
    assert len(operator.manager) == 0


async def test_lease_is_offered_claimed_granted_and_released(shared: SharedState, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")

    assert (await operator.answer(report())).offers == (lease,)
    granted = await operator.answer(report(sequence=2, claims=(lease,)))
    assert [(grant.id, grant.task_token, grant.input) for grant in granted.granted] == [(lease, "t1", "input of t1")]
    assert granted.offers == ()
    assert shared.records.kept[lease].owner == OWNER

    await operator.answer(report(sequence=3, busy=1, leases=(HeldLease(lease, 1.0),)))
    assert operator.manager.counts(KEY).total == 0
    assert (await operator.answer(report(sequence=4, released=(lease,)))).released == (lease,)
    assert not shared.records.kept
    assert len(operator.manager) == 0


async def test_grant_names_the_type_and_execution_of_a_task_of_swf(operator: Operator) -> None:
    activity = ScheduledActivity("render-invoice", "1", "activity-7", "order-7", "run-1")
    target = PollTarget("", "eu-west-1", domain="shop", task_list="invoices")
    operator.manager.receive(POOL, target, LeasedTask("t1", "{}", activity))
    await asyncio.sleep(1)
    (lease,) = (await operator.answer(report())).offers
    (grant,) = (await operator.answer(report(sequence=2, claims=(lease,)))).granted

    assert (grant.task_token, grant.activity) == ("t1", activity)


async def test_bytes_of_a_released_lease_count_while_etcd_keeps_its_history(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    size = operator.manager.totals().size_bytes
    await operator.answer(report(claims=(lease,)))
    await operator.answer(report(sequence=2, released=(lease,)))

    assert operator.manager.totals() == LeaseTotals(0, size, 0)
    await asyncio.sleep(HISTORY_SECONDS)
    assert operator.manager.totals() == LeaseTotals()


async def test_repeated_claim_of_the_owner_is_granted_again(shared: SharedState, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    for sequence in (2, 3):
        handed = await operator.answer(report(sequence=sequence, claims=(lease,)))
        assert [grant.id for grant in handed.granted] == [lease]

    assert shared.records.calls["claim"] == 1


async def test_concurrent_claims_of_one_worker_are_both_granted(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")

    handed = await asyncio.gather(
        operator.answer(report(sequence=2, claims=(lease,))), operator.answer(report(sequence=3, claims=(lease,)))
    )

    assert [len(answer.granted) for answer in handed] == [1, 1]


async def test_concurrent_claims_of_two_workers_are_granted_to_one(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")

    first, second = await asyncio.gather(
        operator.answer(report(claims=(lease,))), operator.answer(other(claims=(lease,)))
    )

    assert sorted([len(first.granted), len(second.granted)]) == [0, 1]
    assert sorted([first.refused, second.refused]) == [(), (lease,)]


async def test_claim_that_conflicts_does_not_revoke_another_workers_grant(
    shared: SharedState, operator: Operator
) -> None:
    """The conflict must not count as a deleted record: the new owner would be refused, and no worker would run it."""
    (lease,) = await operator.hold("t1")
    shared.records.conflicts = 1

    slow = asyncio.create_task(operator.answer(report(claims=(lease,))))
    await asyncio.sleep(0.015)
    quick = await operator.answer(other(claims=(lease,)))

    assert [grant.id for grant in quick.granted] == [lease]
    assert (await slow).refused == (lease,)
    assert len(operator.manager) == 1
    assert shared.records.kept[lease].owner == LeaseOwner("uid-b", "b-first")


async def test_claim_with_repeated_conflicts_stays_open(shared: SharedState, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    shared.records.conflicts = 100

    unclear = await operator.answer(report(claims=(lease,)))

    assert (unclear.offers, unclear.refused) == ((lease,), ())
    shared.records.conflicts = 0
    assert [grant.id for grant in (await operator.answer(report(sequence=2, claims=(lease,)))).granted] == [lease]


async def test_claim_of_another_pools_worker_is_refused(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")

    handed = await operator.answer(report(pool="thief", claims=(lease,)))

    assert (handed.granted, handed.refused) == ((), (lease,))


async def test_release_by_another_worker_keeps_the_record(shared: SharedState, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))

    assert (await operator.answer(other(released=(lease,)))).released == (lease,)
    assert lease in shared.records.kept


async def test_claim_that_cannot_be_written_stays_open(shared: SharedState, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    shared.records.down = True
    handed = await operator.answer(report(claims=(lease,)))
    assert (handed.granted, handed.refused, handed.offers) == ((), (), (lease,))

    shared.records.down = False
    assert len((await operator.answer(report(sequence=2, claims=(lease,)))).granted) == 1


async def test_slow_api_server_delays_a_reply_by_at_most_two_seconds(shared: SharedState, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    shared.records.stop_at = "before claim"
    began = wall()

    handed = await operator.answer(report(claims=(lease,)))

    assert wall() - began <= 2.1
    assert handed.offers == (lease,)


async def test_release_that_cannot_be_written_is_not_acknowledged(shared: SharedState, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    shared.records.down = True
    assert (await operator.answer(report(sequence=2, released=(lease,)))).released == ()

    shared.records.down = False
    assert (await operator.answer(report(sequence=3, released=(lease,)))).released == (lease,)


async def test_released_lease_leaves_no_background_task(shared: SharedState, operator: Operator) -> None:
    before = len(asyncio.all_tasks())
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    await operator.answer(report(sequence=2, released=(lease,)))
    await asyncio.sleep(5.0)

    assert len(asyncio.all_tasks()) == before
