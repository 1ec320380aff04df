"""The operator sends a task's heartbeats until its worker does, also while a server is unreachable."""

import asyncio
from itertools import pairwise

from activity_operator.leases.heartbeats import WAITING_HEARTBEAT_SECONDS
from activity_operator.leases.rules import GRANT_SECONDS, LeasePolicy
from activity_worker.contract import HeldLease
from tests.unit.activity_operator.leases.shared_state import POOL, Operator, SharedState
from tests.unit.activity_operator.reports.builders import report
from tests.unit.activity_operator.virtual_time import wall

KEY = POOL.key


async def test_operator_sends_heartbeats_until_the_owner_reports_the_lease(
    shared: SharedState, operator: Operator
) -> None:
    operator.manager.set_policy(KEY, LeasePolicy(heartbeat_seconds=3.0))
    (lease,) = await operator.hold("t1")
    await asyncio.sleep(10.0)
    assert len(shared.service.beats["t1"]) == 3

    await operator.answer(report(claims=(lease,)))
    await operator.answer(report(sequence=2, busy=1, leases=(HeldLease(lease, 1.0),)))
    await asyncio.sleep(100.0)

    assert len(shared.service.beats["t1"]) == 3


async def test_task_gets_heartbeats_until_its_grant_arrives(shared: SharedState, operator: Operator) -> None:
    """Reports fail right after the claim is written, so the worker gets its grant 40 s later."""
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    await asyncio.sleep(40.0)
    beats = shared.service.beats["t1"]
    assert max(later - sooner for sooner, later in pairwise([*beats, wall()])) <= WAITING_HEARTBEAT_SECONDS + 1

    assert [grant.id for grant in (await operator.answer(report(sequence=2, claims=(lease,)))).granted] == [lease]


async def test_heartbeats_for_an_owner_that_never_reports_its_lease_end(
    shared: SharedState, operator: Operator
) -> None:
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    claimed = wall()
    await asyncio.sleep(10 * GRANT_SECONDS)

    assert claimed + GRANT_SECONDS / 2 < shared.service.beats["t1"][-1] <= claimed + GRANT_SECONDS


async def test_heartbeats_continue_without_api_server_and_record_follows(
    shared: SharedState, operator: Operator
) -> None:
    shared.records.down = True
    operator.manager.set_policy(KEY, LeasePolicy(heartbeat_seconds=5.0))
    operator.receive("t1")
    await asyncio.sleep(61.0)
    assert len(shared.service.beats["t1"]) == 12
    assert (await operator.answer(report())).offers == ()

    shared.records.down = False
    await asyncio.sleep(11.0)

    assert len((await operator.answer(report(sequence=2))).offers) == 1
    assert len(shared.records.kept) == 1


async def test_heartbeat_of_a_finished_task_ends_the_lease_with_an_event(
    shared: SharedState, operator: Operator
) -> None:
    (lease,) = await operator.hold("t1")
    shared.service.over.add("t1")
    await asyncio.sleep(11.0)

    assert not shared.records.kept
    assert operator.reasons == ["LeaseExpired"]
    assert (await operator.answer(report(claims=(lease,)))).refused == (lease,)


async def test_refused_heartbeat_ends_heartbeats_and_keeps_the_lease(shared: SharedState, operator: Operator) -> None:
    shared.service.refuses_heartbeats = True
    (lease,) = await operator.hold("t1")
    await asyncio.sleep(100.0)

    assert len(shared.service.beats["t1"]) == 1
    assert (await operator.answer(report())).offers == (lease,)


async def test_heartbeats_of_many_leases_are_spread_after_a_change_of_leader(
    shared: SharedState, operator: Operator
) -> None:
    await asyncio.gather(*(operator.hold(f"t{number}") for number in range(1000)))
    await operator.kill()
    shared.service.beats.clear()
    began = wall()
    await Operator.leading(shared)
    await asyncio.sleep(20.0)

    times = sorted(time for beats in shared.service.beats.values() for time in beats)
    assert max(later - sooner for sooner, later in zip(times, times[200:], strict=False)) >= 0.99
    assert min(later - sooner for sooner, later in zip(times, times[201:], strict=False)) >= 0.99
    assert max(beats[0] for beats in shared.service.beats.values()) - began <= 5.1
    gaps = [later - sooner for beats in shared.service.beats.values() for sooner, later in pairwise(beats)]
    assert max(gaps) <= 2 * WAITING_HEARTBEAT_SECONDS


async def test_failed_heartbeat_is_retried_before_the_next_one_is_due(shared: SharedState, operator: Operator) -> None:
    await operator.hold("t1")
    shared.service.unreachable = True
    await asyncio.sleep(13.0)

    assert len(shared.service.beats["t1"]) >= 3
