"""What a change of leader means for tasks that wait: somebody keeps each of them alive, and nobody for ever."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from activity_operator.workers.custody import LISTING_SECONDS, WAITING_HEARTBEAT_SECONDS
from activity_operator.workers.handover_state import Terms
from activity_operator.workers.lingering import LINGER_SECONDS, OUTAGE_SECONDS
from activity_worker.contract import ERROR_NO_WORKER, lease_id
from tests.unit.activity_operator.virtual_time import wall
from tests.unit.activity_operator.workers.reports import report
from tests.unit.activity_operator.workers.world import POOL, Operator, World

KEY = POOL.key


async def test_an_outage_that_ends_the_term_ends_no_waiting_task(world: World, operator: Operator) -> None:
    """With the API server away nobody leads; HeartbeatSeconds goes on being kept."""
    await operator.hold("t1")
    world.records.down = True
    operator.custody.end_term()
    await asyncio.sleep(200.0)
    beats = world.service.beats["t1"]
    assert max(later - sooner for sooner, later in pairwise(beats)) <= WAITING_HEARTBEAT_SECONDS + 1

    world.records.down = False
    await operator.custody.begin_term()
    await asyncio.sleep(60.0)
    assert max(later - sooner for sooner, later in pairwise(beats)) <= WAITING_HEARTBEAT_SECONDS + 1
    assert operator.custody.said(KEY).held == 1


@pytest.mark.parametrize(("down", "seconds"), [(False, LINGER_SECONDS), (True, OUTAGE_SECONDS)])
async def test_a_former_leader_keeps_a_task_alive_for_a_while_only(
    world: World, operator: Operator, down: bool, seconds: float
) -> None:
    """The next leader's worker may be dead, and the service's own time-out must find that out."""
    await operator.hold("t1", "t2")
    await operator.hear(report(claims=(lease_id("t2"),)))
    world.records.down = down
    ended = wall()
    operator.custody.end_term()
    await asyncio.sleep(2 * OUTAGE_SECONDS)

    assert ended < world.service.beats["t1"][-1] <= ended + seconds
    assert "t2" not in world.service.beats, "a task that a worker runs is the worker's to keep alive"


async def test_patience_is_counted_by_ones_own_clock(world: World, operator: Operator) -> None:
    """The machine of the leader before had its clock an hour behind."""
    (lease,) = await operator.hold("t1")
    world.records.kept[lease] = replace(world.records.kept[lease], received_at=wall() - 3600.0)
    successor = Operator(world)
    successor.custody.order(KEY, Terms(hold_seconds=30.0))
    await successor.custody.begin_term()
    await asyncio.sleep(25.0)
    assert not world.service.failed
    await asyncio.sleep(10.0)

    assert world.service.failed["t1"][0] == ERROR_NO_WORKER


async def test_what_a_former_leaders_last_poll_brought_is_found_and_kept_alive_meanwhile(
    world: World, operator: Operator
) -> None:
    former = Operator(world)
    operator.custody.order(KEY, Terms(heartbeat_seconds=3.0))
    former.custody.order(KEY, Terms(heartbeat_seconds=3.0))
    await asyncio.sleep(500.0)
    lease = former.receive("t1")
    await asyncio.sleep(200.0)

    assert len(former.custody) == 0
    assert (await operator.hear(report())).offers == (lease,)
    beats = world.service.beats["t1"]
    assert max(later - earlier for earlier, later in pairwise(beats)) < 3.5
    assert former.said == []


async def test_a_former_leader_says_nothing_of_a_task_that_a_worker_concluded_meanwhile(
    world: World, operator: Operator
) -> None:
    former = Operator(world)
    lease = former.receive("t1")
    await asyncio.sleep(8.0)
    await operator.hear(report(claims=(lease,)))
    world.service.over.add("t1")
    await operator.hear(report(sequence=2, released=(lease,)))
    await asyncio.sleep(60.0)

    assert former.said == []
    assert len(former.custody) == 0


async def test_losing_the_term_leaves_recorded_leases_to_the_next_leader_and_records_the_others(
    world: World, operator: Operator
) -> None:
    await operator.hold("t1")
    world.records.down = True
    operator.receive("t2")
    await asyncio.sleep(1.0)
    operator.custody.end_term()
    await asyncio.sleep(25.0)
    assert len(world.service.beats["t2"]) == 5

    world.records.down = False
    assert await operator.custody.close(20.0) == 0
    assert len(world.records.kept) == 2


async def test_a_listing_that_is_behind_brings_nothing_back(world: World, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    stale = world.records.kept[lease]
    await operator.hear(report(claims=(lease,)))
    await operator.hear(report(sequence=2, released=(lease,)))
    operator.custody.adopt(stale)

    assert len(operator.custody) == 0


async def test_a_leader_that_slept_records_no_task_that_another_one_has_had_done(
    world: World, operator: Operator
) -> None:
    """Frozen right after its write: the next leader found the record, had the task done and removed the record."""
    world.records.unanswered = True
    operator.receive("t1")
    await asyncio.sleep(0.1)
    assert world.records.kept
    world.records.down = True
    operator.custody.end_term()
    world.records.kept.clear()
    world.service.over.add("t1")
    await asyncio.sleep(WAITING_HEARTBEAT_SECONDS + 1)
    tries = world.records.calls["create"]
    world.records.unanswered = world.records.down = False
    await asyncio.sleep(60.0)

    assert not world.records.kept
    assert world.records.calls["create"] == tries
    assert await operator.custody.close(20.0) == 0


async def test_a_record_whose_write_was_not_answered_goes_when_its_task_is_over(
    world: World, operator: Operator
) -> None:
    world.records.unanswered = True
    operator.receive("t1")
    world.service.over.add("t1")
    await asyncio.sleep(WAITING_HEARTBEAT_SECONDS + LISTING_SECONDS)

    assert not world.records.kept
    assert operator.reasons == ["LeaseExpired"]


async def test_a_record_that_cannot_be_removed_is_not_removed_more_often_with_every_listing(
    world: World, operator: Operator
) -> None:
    """A webhook that is down refuses every DELETE; listings go on."""
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    world.records.undeletable = True
    world.service.over.add("t1")
    world.pods.discard("uid-a")
    await asyncio.sleep(600.0)
    before = world.records.calls["delete"]
    await asyncio.sleep(600.0)

    assert 30 < world.records.calls["delete"] - before <= 120
    world.records.undeletable = False
    await asyncio.sleep(30.0)
    assert not world.records.kept
