"""A task that the operator took reaches exactly one worker, whatever dies on the way."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from activity_operator.workers.custody import WAITING_HEARTBEAT_SECONDS
from activity_operator.workers.handover_state import GRANT_SECONDS, UNSHOWN_SECONDS, Offers, Terms, offers
from activity_operator.workers.leases import Owner
from activity_worker.contract import ERROR_DELETED, ERROR_NO_WORKER, HeldLease, Report, WorkerState
from tests.unit.activity_operator.virtual_time import settle, wall
from tests.unit.activity_operator.workers.reports import report
from tests.unit.activity_operator.workers.world import POOL, Operator, World

KEY = POOL.key
OWNER = Owner("uid-a", "first")


def other(**changes: object) -> Report:
    return report(pod_uid="uid-b", pod_name="resize-b", incarnation="b-first", **changes)


async def test_a_lease_is_recorded_before_it_is_offered(world: World, operator: Operator) -> None:
    world.records.stop_at = "before create"
    operator.receive("t1")
    await settle()

    assert (await operator.hear(report())).offers == ()
    assert operator.custody.said(KEY).unrecorded == 1


async def test_a_lease_that_is_not_recorded_cannot_be_claimed(world: World, operator: Operator) -> None:
    world.records.stop_at = "before create"
    lease = operator.receive("t1")
    await settle()

    assert (await operator.hear(report(claims=(lease,)))).refused == (lease,)
    assert world.records.calls["claim"] == 0


async def test_a_lease_whose_record_somebody_removed_is_nobodys(world: World, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    world.records.kept.clear()

    assert (await operator.hear(report(claims=(lease,)))).refused == (lease,)
    assert len(operator.custody) == 0


async def test_offer_claim_grant_release(world: World, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")

    assert (await operator.hear(report())).offers == (lease,)
    granted = await operator.hear(report(sequence=2, claims=(lease,)))
    assert [(grant.id, grant.task_token, grant.input) for grant in granted.granted] == [(lease, "t1", "input of t1")]
    assert granted.offers == ()
    assert world.records.kept[lease].owner == OWNER

    await operator.hear(report(sequence=3, busy=1, leases=(HeldLease(lease, 1.0),)))
    assert operator.custody.said(KEY).total == 0
    assert (await operator.hear(report(sequence=4, released=(lease,)))).released == (lease,)
    assert not world.records.kept
    assert len(operator.custody) == 0


async def test_the_operator_heartbeats_until_the_owner_shows_its_grant_and_not_after(
    world: World, operator: Operator
) -> None:
    operator.custody.order(KEY, Terms(heartbeat_seconds=3.0))
    (lease,) = await operator.hold("t1")
    await asyncio.sleep(10.0)
    assert len(world.service.beats["t1"]) == 3

    await operator.hear(report(claims=(lease,)))
    await operator.hear(report(sequence=2, busy=1, leases=(HeldLease(lease, 1.0),)))
    await asyncio.sleep(100.0)

    assert len(world.service.beats["t1"]) == 3


async def test_a_task_whose_grant_did_not_arrive_is_kept_alive_until_it_does(world: World, operator: Operator) -> None:
    """Reports were cut right after the claim was written: the worker hears of its task forty seconds later."""
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    await asyncio.sleep(40.0)
    beats = world.service.beats["t1"]
    assert max(later - sooner for sooner, later in pairwise([*beats, wall()])) <= WAITING_HEARTBEAT_SECONDS + 1

    assert [grant.id for grant in (await operator.hear(report(sequence=2, claims=(lease,)))).granted] == [lease]


async def test_an_owner_that_never_shows_its_task_may_be_dead_and_is_not_covered_for_long(
    world: World, operator: Operator
) -> None:
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    claimed = wall()
    await asyncio.sleep(10 * GRANT_SECONDS)

    assert claimed + GRANT_SECONDS / 2 < world.service.beats["t1"][-1] <= claimed + GRANT_SECONDS


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


async def test_claiming_again_by_the_same_owner_is_granted_again(world: World, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    for sequence in (2, 3):
        handed = await operator.hear(report(sequence=sequence, claims=(lease,)))
        assert [grant.id for grant in handed.granted] == [lease]

    assert world.records.calls["claim"] == 1


async def test_the_same_claim_twice_at_once_is_granted_twice(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")

    handed = await asyncio.gather(
        operator.hear(report(sequence=2, claims=(lease,))), operator.hear(report(sequence=3, claims=(lease,)))
    )

    assert [len(answer.granted) for answer in handed] == [1, 1]


async def test_of_two_workers_that_claim_at_once_one_is_granted_and_one_refused(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")

    first, second = await asyncio.gather(operator.hear(report(claims=(lease,))), operator.hear(other(claims=(lease,))))

    assert sorted([len(first.granted), len(second.granted)]) == [0, 1]
    assert sorted([first.refused, second.refused]) == [(), (lease,)]


async def test_a_claimed_lease_is_never_offered_again(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    await asyncio.sleep(60.0)

    assert (await operator.hear(other())).offers == ()


def choose(operator: Operator, of: Report, **options: Any) -> Offers:
    return offers(tuple(operator.custody.of(KEY)), of, wall(), cordoned=False, **options)


async def test_an_offer_is_one_workers_for_a_while_and_then_another_ones(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    assert (await operator.hear(report())).offers == (lease,)
    assert choose(operator, other()).now == ()
    await asyncio.sleep(6.0)

    assert choose(operator, other()).now == (lease,)


async def test_offers_are_no_more_than_slots_the_oldest_first_and_free_slots_have_theirs_alone(
    operator: Operator,
) -> None:
    leases = await operator.hold("t1", "t2", "t3", "t4")

    assert choose(operator, report(slots=3, busy=1)) == Offers(now=tuple(leases[:2]), ahead=(leases[2],))
    assert (await operator.hear(report(slots=3, busy=1))).offers == tuple(leases[:3])
    assert choose(operator, other(slots=2)).now == tuple(leases[2:])


async def test_a_slot_that_becomes_free_has_an_offer_to_claim_before_it_polls(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")

    assert (await operator.hear(report(slots=1, busy=1))).offers == (lease,)
    assert choose(operator, other(slots=1)).now == (lease,)


async def test_a_granted_lease_that_is_not_shown_yet_keeps_its_slot(operator: Operator) -> None:
    leases = await operator.hold("t1", "t2", "t3")
    handed = await operator.hear(report(slots=2, claims=(leases[0],)))

    assert [grant.id for grant in handed.granted] == [leases[0]]
    assert choose(operator, report(slots=2)) == Offers(now=(leases[1],), ahead=(leases[2],))


async def test_a_claim_that_is_not_answered_yet_keeps_its_slot(operator: Operator) -> None:
    leases = await operator.hold("t1", "t2")

    assert choose(operator, report(slots=1), unclear=[leases[0]]) == Offers(ahead=(leases[1],))


@pytest.mark.parametrize("state", [WorkerState.DRAINING, WorkerState.DRAINED, WorkerState.STOPPING])
async def test_a_worker_that_leaves_is_offered_nothing(operator: Operator, state: WorkerState) -> None:
    await operator.hold("t1")

    assert (await operator.hear(report(state=state))).offers == ()
    assert (await operator.hear(report(sequence=2), cordoned=True)).offers == ()


async def test_a_starting_worker_is_offered_leases_before_its_first_poll(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")

    assert (await operator.hear(report(state=WorkerState.STARTING))).offers == (lease,)


async def test_a_worker_of_another_pool_gets_nothing_by_guessing_an_id(operator: Operator) -> None:
    (lease,) = await operator.hold("t1")

    handed = await operator.hear(report(pool="thief", claims=(lease,)))

    assert (handed.granted, handed.refused) == ((), (lease,))


async def test_a_release_by_a_worker_that_does_not_own_the_lease_removes_nothing(
    world: World, operator: Operator
) -> None:
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))

    assert (await operator.hear(other(released=(lease,)))).released == (lease,)
    assert lease in world.records.kept


async def test_heartbeats_go_on_while_the_api_server_is_unreachable_and_the_record_follows(
    world: World, operator: Operator
) -> None:
    world.records.down = True
    operator.custody.order(KEY, Terms(heartbeat_seconds=5.0))
    operator.receive("t1")
    await asyncio.sleep(61.0)
    assert len(world.service.beats["t1"]) == 12
    assert (await operator.hear(report())).offers == ()

    world.records.down = False
    await asyncio.sleep(11.0)

    assert len((await operator.hear(report(sequence=2))).offers) == 1
    assert len(world.records.kept) == 1


async def test_a_claim_that_cannot_be_written_stays_open(world: World, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    world.records.down = True
    handed = await operator.hear(report(claims=(lease,)))
    assert (handed.granted, handed.refused, handed.offers) == ((), (), (lease,))

    world.records.down = False
    assert len((await operator.hear(report(sequence=2, claims=(lease,)))).granted) == 1


async def test_a_slow_api_server_delays_no_reply_for_long(world: World, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    world.records.stop_at = "before claim"
    began = wall()

    handed = await operator.hear(report(claims=(lease,)))

    assert wall() - began <= 2.1
    assert handed.offers == (lease,)


async def test_a_release_that_cannot_be_written_is_not_echoed(world: World, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    world.records.down = True
    assert (await operator.hear(report(sequence=2, released=(lease,)))).released == ()

    world.records.down = False
    assert (await operator.hear(report(sequence=3, released=(lease,)))).released == (lease,)


async def test_a_heartbeat_that_is_told_the_task_is_over_ends_the_lease_and_says_so(
    world: World, operator: Operator
) -> None:
    (lease,) = await operator.hold("t1")
    world.service.over.add("t1")
    await asyncio.sleep(11.0)

    assert not world.records.kept
    assert operator.reasons == ["LeaseExpired"]
    assert (await operator.hear(report(claims=(lease,)))).refused == (lease,)


async def test_a_refused_heartbeat_stops_the_heartbeats_and_keeps_the_lease(world: World, operator: Operator) -> None:
    world.service.refuses_heartbeats = True
    (lease,) = await operator.hold("t1")
    await asyncio.sleep(100.0)

    assert len(world.service.beats["t1"]) == 1
    assert (await operator.hear(report())).offers == (lease,)


async def test_an_unreachable_service_is_asked_again_before_the_next_heartbeat_is_due(
    world: World, operator: Operator
) -> None:
    await operator.hold("t1")
    world.service.unreachable = True
    await asyncio.sleep(13.0)

    assert len(world.service.beats["t1"]) >= 3


async def test_a_paused_pool_keeps_its_leases_and_offers_them_when_it_resumes(world: World, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    operator.custody.order(KEY, Terms(paused=True, hold_seconds=30.0))
    await asyncio.sleep(100.0)
    assert (await operator.hear(report())).offers == ()
    assert len(world.service.beats["t1"]) >= 9

    operator.custody.order(KEY, Terms())
    assert (await operator.hear(report(sequence=2))).offers == (lease,)


async def test_the_waiting_tasks_of_a_deleted_pool_are_failed(world: World, operator: Operator) -> None:
    await operator.hold("t1")
    world.pools.clear()
    await asyncio.sleep(6.0)

    assert world.service.failed["t1"][0] == ERROR_DELETED
    assert "media/resize" in world.service.failed["t1"][1]
    assert not world.records.kept


async def test_a_pool_that_is_out_of_sight_for_a_moment_loses_no_task(world: World, operator: Operator) -> None:
    await operator.hold("t1")
    for _ in range(10):
        world.pools.clear()
        await asyncio.sleep(2.5)
        world.pools.add(POOL.uid)
        await asyncio.sleep(2.5)

    assert not world.service.failed


async def test_a_running_task_of_a_deleted_pool_is_left_to_its_worker(world: World, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    world.pools.clear()
    await asyncio.sleep(60.0)

    assert not world.service.failed


async def test_failing_a_task_is_tried_until_the_service_answers(world: World, operator: Operator) -> None:
    await operator.hold("t1")
    world.pools.clear()
    world.service.unreachable = True
    await asyncio.sleep(60.0)
    assert len(world.records.kept) == 1

    world.service.unreachable = False
    await asyncio.sleep(11.0)
    assert not world.records.kept


async def test_a_task_that_can_never_be_failed_is_given_up_and_said(world: World, operator: Operator) -> None:
    await operator.hold("t1")
    world.pools.clear()
    world.service.unreachable = True
    await asyncio.sleep(1000.0)

    assert operator.reasons == ["LeaseFailed"]
    assert not world.records.kept


async def test_without_a_worker_a_task_is_failed_after_hold_seconds_if_asked_for(
    world: World, operator: Operator
) -> None:
    operator.custody.order(KEY, Terms(hold_seconds=30.0))
    await operator.hold("t1")
    await asyncio.sleep(28.0)
    assert not world.service.failed
    await asyncio.sleep(5.0)

    assert world.service.failed["t1"][0] == ERROR_NO_WORKER


async def test_without_hold_seconds_a_task_waits_as_long_as_the_service_lets_it(
    world: World, operator: Operator
) -> None:
    await operator.hold("t1")
    await asyncio.sleep(7200.0)

    assert not world.service.failed
    assert len(world.service.beats["t1"]) >= 700


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


async def test_no_lease_means_nothing_runs(world: World, operator: Operator) -> None:
    before = len(asyncio.all_tasks())
    (lease,) = await operator.hold("t1")
    await operator.hear(report(claims=(lease,)))
    await operator.hear(report(sequence=2, released=(lease,)))
    await asyncio.sleep(5.0)

    assert len(asyncio.all_tasks()) == before
