"""A worker that claimed a task and is gone, or never says that it has it."""

import asyncio

from activity_operator.workers.handover_state import UNSHOWN_SECONDS
from tests.unit.activity_operator.virtual_time import settle
from tests.unit.activity_operator.workers.reports import report
from tests.unit.activity_operator.workers.world import POOL, Operator, World

KEY = POOL.key


async def test_a_task_that_its_owner_concluded_before_it_could_say_so_is_no_trouble(
    world: World, operator: Operator
) -> None:
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    world.service.over.add("t1")
    await asyncio.sleep(100.0)
    assert operator.reasons == []

    assert (await operator.hear(report(sequence=2, released=(lease,)))).released == (lease,)
    assert not world.records.kept


async def test_a_restarted_container_has_lost_what_it_had_claimed(world: World, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    handed = await operator.hear(report(incarnation="second"))
    await settle()

    assert handed.offers == ()
    assert operator.reasons == ["LeaseOwnerGone"]
    await asyncio.sleep(1.0)
    assert not world.records.kept


async def test_a_worker_whose_pod_is_gone_has_lost_what_it_had_claimed(world: World, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    world.pods.discard("uid-a")
    await asyncio.sleep(3.0)

    assert operator.reasons == ["LeaseOwnerGone"]
    assert not world.records.kept


async def test_an_owner_that_never_shows_its_lease_blocks_zero_for_a_while_only(
    world: World, operator: Operator
) -> None:
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    await operator.hear(report(sequence=2))
    assert operator.custody.said(KEY).claimed == 1

    await asyncio.sleep(UNSHOWN_SECONDS)
    await operator.hear(report(sequence=3))
    assert operator.custody.said(KEY).claimed == 0


async def test_an_owner_that_leaves_after_the_service_said_that_its_task_is_over_has_lost_nothing(
    world: World, operator: Operator
) -> None:
    """It concluded its task while nobody led, and its last report found no leader."""
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    world.service.over.add("t1")
    await asyncio.sleep(10.0)
    world.pods.discard("uid-a")
    await asyncio.sleep(5.0)

    assert operator.reasons == []
    assert not world.records.kept


async def test_an_owner_that_said_at_its_last_that_its_task_is_concluded_has_lost_nothing(
    world: World, operator: Operator
) -> None:
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    world.records.down = True
    assert (await operator.hear(report(sequence=2, released=(lease,)))).released == ()
    world.pods.discard("uid-a")
    world.records.down = False
    await asyncio.sleep(5.0)

    assert operator.reasons == []
    assert not world.records.kept
