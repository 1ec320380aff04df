"""Waiting tasks during a change of leader: each is kept alive without a gap, and only for a limited time."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from activity_operator.leases.heartbeats import WAITING_HEARTBEAT_SECONDS
from activity_operator.leases.rules import LeasePolicy
from activity_operator.leases.takeover import LINGER_SECONDS, LISTING_SECONDS, OUTAGE_SECONDS
from activity_worker.contract import ERROR_NO_WORKER, lease_id
from tests.unit.activity_operator.leases.shared_state import POOL, Operator, SharedState
from tests.unit.activity_operator.reports.builders import report
from tests.unit.activity_operator.virtual_time import wall

KEY = POOL.key


async def test_waiting_task_gets_heartbeats_through_an_api_server_outage(
    shared: SharedState, operator: Operator
) -> None:
    """During the outage no replica leads; heartbeats must still arrive within HeartbeatSeconds."""
    await operator.hold("t1")
    shared.records.down = True
    operator.manager.end_term()
    await asyncio.sleep(200.0)
    beats = shared.service.beats["t1"]
    assert max(later - sooner for sooner, later in pairwise(beats)) <= WAITING_HEARTBEAT_SECONDS + 1

    shared.records.down = False
    await operator.manager.begin_term()
    await asyncio.sleep(60.0)
    assert max(later - sooner for sooner, later in pairwise(beats)) <= WAITING_HEARTBEAT_SECONDS + 1
    assert operator.manager.counts(KEY).held == 1


@pytest.mark.parametrize(("down", "seconds"), [(False, LINGER_SECONDS), (True, OUTAGE_SECONDS)])
async def test_former_leader_sends_heartbeats_for_a_limited_time(
    shared: SharedState, operator: Operator, down: bool, seconds: float
) -> None:
    """The next leader's worker may be dead, and the service's own time-out must detect that."""
    await operator.hold("t1", "t2")
    await operator.answer(report(claims=(lease_id("t2"),)))
    shared.records.down = down
    ended = wall()
    operator.manager.end_term()
    await asyncio.sleep(2 * OUTAGE_SECONDS)

    assert ended < shared.service.beats["t1"][-1] <= ended + seconds
    assert "t2" not in shared.service.beats, "a task that a worker runs is the worker's to keep alive"


async def test_hold_time_is_measured_by_the_new_leaders_clock(shared: SharedState, operator: Operator) -> None:
    """The former leader's clock was an hour behind."""
    (lease,) = await operator.hold("t1")
    shared.records.kept[lease] = replace(shared.records.kept[lease], received_at=wall() - 3600.0)
    successor = Operator(shared)
    successor.manager.set_policy(KEY, LeasePolicy(hold_seconds=30.0))
    await successor.manager.begin_term()
    await asyncio.sleep(25.0)
    assert not shared.service.failed
    await asyncio.sleep(10.0)

    assert shared.service.failed["t1"][0] == ERROR_NO_WORKER


async def test_task_of_a_former_leaders_last_poll_is_offered_by_the_new_one(
    shared: SharedState, operator: Operator
) -> None:
    former = Operator(shared)
    operator.manager.set_policy(KEY, LeasePolicy(heartbeat_seconds=3.0))
    former.manager.set_policy(KEY, LeasePolicy(heartbeat_seconds=3.0))
    await asyncio.sleep(500.0)
    lease = former.receive("t1")
    await asyncio.sleep(200.0)

    assert len(former.manager) == 0
    assert (await operator.answer(report())).offers == (lease,)
    beats = shared.service.beats["t1"]
    assert max(later - earlier for earlier, later in pairwise(beats)) < 3.5
    assert former.events == []


async def test_former_leader_emits_no_event_for_a_concluded_task(shared: SharedState, operator: Operator) -> None:
    former = Operator(shared)
    lease = former.receive("t1")
    await asyncio.sleep(8.0)
    await operator.answer(report(claims=(lease,)))
    shared.service.over.add("t1")
    await operator.answer(report(sequence=2, released=(lease,)))
    await asyncio.sleep(60.0)

    assert former.events == []
    assert len(former.manager) == 0


async def test_end_of_term_records_leases_that_were_not_recorded_yet(shared: SharedState, operator: Operator) -> None:
    await operator.hold("t1")
    shared.records.down = True
    operator.receive("t2")
    await asyncio.sleep(1.0)
    operator.manager.end_term()
    await asyncio.sleep(25.0)
    assert len(shared.service.beats["t2"]) == 5

    shared.records.down = False
    assert await operator.manager.close(20.0) == 0
    assert len(shared.records.kept) == 2


async def test_outdated_listing_does_not_restore_a_released_lease(shared: SharedState, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    stale = shared.records.kept[lease]
    await operator.answer(report(claims=(lease,)))
    await operator.answer(report(sequence=2, released=(lease,)))
    operator.manager.adopt(stale)

    assert len(operator.manager) == 0


async def test_frozen_leader_does_not_record_a_task_that_is_already_done(
    shared: SharedState, operator: Operator
) -> None:
    """Frozen right after its write; the next leader found the record, had the task done and removed the record."""
    shared.records.unanswered = True
    operator.receive("t1")
    await asyncio.sleep(0.1)
    assert shared.records.kept
    shared.records.down = True
    operator.manager.end_term()
    shared.records.kept.clear()
    shared.service.over.add("t1")
    await asyncio.sleep(WAITING_HEARTBEAT_SECONDS + 1)
    tries = shared.records.calls["create"]
    shared.records.unanswered = shared.records.down = False
    await asyncio.sleep(60.0)

    assert not shared.records.kept
    assert shared.records.calls["create"] == tries
    assert await operator.manager.close(20.0) == 0


async def test_record_with_a_lost_answer_is_removed_when_its_task_is_over(
    shared: SharedState, operator: Operator
) -> None:
    shared.records.unanswered = True
    operator.receive("t1")
    shared.service.over.add("t1")
    await asyncio.sleep(WAITING_HEARTBEAT_SECONDS + LISTING_SECONDS)

    assert not shared.records.kept
    assert operator.reasons == ["LeaseExpired"]


async def test_listings_do_not_multiply_attempts_to_delete_a_record(shared: SharedState, operator: Operator) -> None:
    """A broken webhook refuses every DELETE while listings go on."""
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    shared.records.undeletable = True
    shared.service.over.add("t1")
    shared.pods.discard("uid-a")
    await asyncio.sleep(600.0)
    before = shared.records.calls["delete"]
    await asyncio.sleep(600.0)

    assert 30 < shared.records.calls["delete"] - before <= 120
    shared.records.undeletable = False
    await asyncio.sleep(30.0)
    assert not shared.records.kept


@pytest.mark.parametrize("same", [True, False], ids=["the same process leads next", "another process leads next"])
async def test_removal_that_the_end_of_a_term_stops_is_the_next_leaders(
    shared: SharedState, operator: Operator, same: bool
) -> None:
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    shared.records.unled = True
    shared.service.over.add("t1")
    shared.pods.discard("uid-a")
    await asyncio.sleep(60.0)
    assert shared.records.calls["delete"]
    assert shared.records.kept

    operator.manager.end_term()
    shared.records.unled = False
    next_leader = operator if same else Operator(shared)
    await next_leader.manager.begin_term()
    await asyncio.sleep(LISTING_SECONDS)
    assert not shared.records.kept
