"""Owners that are gone, or that never report the task they claimed."""

import asyncio

from activity_operator.leases.rules import UNSHOWN_SECONDS
from tests.unit.activity_operator.leases.shared_state import POOL, Operator, SharedState
from tests.unit.activity_operator.reports.builders import report
from tests.unit.activity_operator.virtual_time import settle

KEY = POOL.key


async def test_task_concluded_before_the_owner_reports_it_causes_no_event(
    shared: SharedState, operator: Operator
) -> None:
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    shared.service.over.add("t1")
    await asyncio.sleep(100.0)
    assert operator.reasons == []

    assert (await operator.answer(report(sequence=2, released=(lease,)))).released == (lease,)
    assert not shared.records.kept


async def test_restarted_container_loses_its_claimed_lease(shared: SharedState, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    handed = await operator.answer(report(incarnation="second"))
    await settle()

    assert handed.offers == ()
    assert operator.reasons == ["LeaseOwnerGone"]
    await asyncio.sleep(1.0)
    assert not shared.records.kept


async def test_deleted_pod_loses_its_claimed_lease(shared: SharedState, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    shared.pods.discard("uid-a")
    await asyncio.sleep(3.0)

    assert operator.reasons == ["LeaseOwnerGone"]
    assert not shared.records.kept


async def test_lease_that_its_owner_never_reports_counts_for_a_limited_time(
    shared: SharedState, operator: Operator
) -> None:
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    await operator.answer(report(sequence=2))
    assert operator.manager.counts(KEY).claimed == 1

    await asyncio.sleep(UNSHOWN_SECONDS)
    await operator.answer(report(sequence=3))
    assert operator.manager.counts(KEY).claimed == 0


async def test_owner_that_leaves_after_its_task_is_over_causes_no_event(
    shared: SharedState, operator: Operator
) -> None:
    """The owner concluded its task while no replica led, so its last report found no leader."""
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    shared.service.over.add("t1")
    await asyncio.sleep(10.0)
    shared.pods.discard("uid-a")
    await asyncio.sleep(5.0)

    assert operator.reasons == []
    assert not shared.records.kept


async def test_owner_that_leaves_after_its_release_report_causes_no_event(
    shared: SharedState, operator: Operator
) -> None:
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    shared.records.down = True
    assert (await operator.answer(report(sequence=2, released=(lease,)))).released == ()
    shared.pods.discard("uid-a")
    shared.records.down = False
    await asyncio.sleep(5.0)

    assert operator.reasons == []
    assert not shared.records.kept
