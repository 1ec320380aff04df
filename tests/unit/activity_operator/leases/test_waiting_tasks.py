"""How long a task waits for a worker, and how it ends if no worker can come."""

import asyncio

import pytest

from activity_operator.backlog.protocol import TaskOverError
from activity_operator.leases.rules import LeasePolicy
from activity_worker.contract import ERROR_DELETED, ERROR_NO_WORKER
from tests.unit.activity_operator.leases.shared_state import POOL, Operator, SharedState
from tests.unit.activity_operator.reports.builders import report

KEY = POOL.key


async def test_paused_pool_keeps_its_leases_and_offers_them_when_it_resumes(
    shared: SharedState, operator: Operator
) -> None:
    (lease,) = await operator.hold("t1")
    operator.manager.set_policy(KEY, LeasePolicy(suspended=True, hold_seconds=30.0))
    await asyncio.sleep(100.0)
    assert (await operator.answer(report())).offers == ()
    assert len(shared.service.beats["t1"]) >= 9

    operator.manager.set_policy(KEY, LeasePolicy())
    assert (await operator.answer(report(sequence=2))).offers == (lease,)


async def test_waiting_tasks_of_a_deleted_pool_are_failed(shared: SharedState, operator: Operator) -> None:
    await operator.hold("t1")
    shared.pools.clear()
    await asyncio.sleep(6.0)

    assert shared.service.failed["t1"][0] == ERROR_DELETED
    assert "media/resize" in shared.service.failed["t1"][1]
    assert not shared.records.kept


async def test_pool_missing_from_the_store_for_a_moment_loses_no_task(shared: SharedState, operator: Operator) -> None:
    await operator.hold("t1")
    for _ in range(10):
        shared.pools.clear()
        await asyncio.sleep(2.5)
        shared.pools.add(POOL.uid)
        await asyncio.sleep(2.5)

    assert not shared.service.failed


async def test_running_task_of_a_deleted_pool_is_left_to_its_worker(shared: SharedState, operator: Operator) -> None:
    (lease,) = await operator.hold("t1")
    await operator.answer(report(claims=(lease,)))
    shared.pools.clear()
    await asyncio.sleep(60.0)

    assert not shared.service.failed


async def test_failing_a_task_is_retried_until_the_service_answers(shared: SharedState, operator: Operator) -> None:
    await operator.hold("t1")
    shared.pools.clear()
    shared.service.unreachable = True
    await asyncio.sleep(60.0)
    assert len(shared.records.kept) == 1

    shared.service.unreachable = False
    await asyncio.sleep(11.0)
    assert not shared.records.kept


async def test_task_that_cannot_be_failed_is_given_up_with_an_event(shared: SharedState, operator: Operator) -> None:
    await operator.hold("t1")
    shared.pools.clear()
    shared.service.unreachable = True
    await asyncio.sleep(1000.0)

    assert operator.reasons == ["LeaseFailed"]
    assert not shared.records.kept


async def test_task_without_a_worker_is_failed_after_hold_seconds(shared: SharedState, operator: Operator) -> None:
    operator.manager.set_policy(KEY, LeasePolicy(hold_seconds=30.0))
    await operator.hold("t1")
    await asyncio.sleep(28.0)
    assert not shared.service.failed
    await asyncio.sleep(5.0)

    assert shared.service.failed["t1"][0] == ERROR_NO_WORKER


async def test_hold_seconds_begin_again_when_workers_may_come_again(shared: SharedState, operator: Operator) -> None:
    """A night without workers is no time in which no worker took the task."""
    operator.manager.set_policy(KEY, LeasePolicy(hold_seconds=30.0))
    await operator.hold("t1")
    await asyncio.sleep(20.0)
    operator.manager.set_policy(KEY, LeasePolicy(hold_seconds=30.0, suspended=True))
    await asyncio.sleep(8 * 3600.0)
    operator.manager.set_policy(KEY, LeasePolicy(hold_seconds=30.0))
    await asyncio.sleep(15.0)
    operator.manager.set_policy(KEY, LeasePolicy(heartbeat_seconds=3.0, hold_seconds=30.0))
    await asyncio.sleep(13.0)
    assert not shared.service.failed
    await asyncio.sleep(5.0)

    assert shared.service.failed["t1"][0] == ERROR_NO_WORKER


async def test_task_without_hold_seconds_waits_without_a_limit(shared: SharedState, operator: Operator) -> None:
    await operator.hold("t1")
    await asyncio.sleep(7200.0)

    assert not shared.service.failed
    assert len(shared.service.beats["t1"]) >= 700


async def test_leader_that_was_frozen_does_not_fail_a_waiting_task(shared: SharedState, operator: Operator) -> None:
    """The next leader may have found a worker by then; the frozen one learns of its lost term only later."""
    operator.manager.set_policy(KEY, LeasePolicy(hold_seconds=30.0))
    await operator.hold("t1")
    await asyncio.sleep(20.0)
    operator.holds_lease = False
    await asyncio.sleep(20.0)
    operator.manager.end_term()
    await asyncio.sleep(20.0)

    assert not shared.service.failed


@pytest.mark.parametrize("informed", [True, False], ids=["its term is over", "not informed yet"])
async def test_task_that_could_not_be_failed_is_not_failed_after_the_term(
    shared: SharedState, operator: Operator, informed: bool
) -> None:
    operator.manager.set_policy(KEY, LeasePolicy(hold_seconds=30.0))
    await operator.hold("t1")
    shared.service.unreachable = True
    await asyncio.sleep(60.0)
    operator.holds_lease = False
    if informed:
        operator.manager.end_term()
    shared.service.unreachable = False
    await asyncio.sleep(30.0)
    assert not shared.service.failed

    operator.holds_lease = True
    await operator.manager.begin_term()
    await asyncio.sleep(60.0)
    assert shared.service.failed["t1"][0] == ERROR_NO_WORKER


async def test_leader_that_renews_in_time_fails_a_task_without_a_worker(
    shared: SharedState, operator: Operator
) -> None:
    operator.manager.set_policy(KEY, LeasePolicy(hold_seconds=30.0))
    await operator.hold("t1")
    shared.service.unreachable = True
    await asyncio.sleep(60.0)
    operator.holds_lease = False
    await asyncio.sleep(15.0)
    shared.service.unreachable = False
    operator.holds_lease = True
    await asyncio.sleep(15.0)

    assert shared.service.failed["t1"][0] == ERROR_NO_WORKER


async def test_task_received_by_two_polls_is_one_lease(shared: SharedState, operator: Operator) -> None:
    """The service may return a task again after the connection of its first poll was cut."""
    operator.receive("t1")
    operator.receive("t1")
    await asyncio.sleep(1.0)

    assert shared.records.calls["create"] == 1
    assert operator.manager.counts(KEY).held == 1


async def test_task_that_ends_while_it_is_recorded_leaves_no_record(shared: SharedState, operator: Operator) -> None:
    lease = operator.receive("t1")
    await asyncio.sleep(0.005)
    entry = operator.manager.table.get(lease)
    assert entry is not None
    operator.manager.endings.end(entry.lease)
    await asyncio.sleep(1.0)

    assert shared.records.calls["create"] == 1
    assert not shared.records.kept


async def test_waiting_task_that_is_already_over_is_dropped_with_an_event(
    shared: SharedState, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def over(*_: object) -> None:
        raise TaskOverError("TaskTimedOut")

    monkeypatch.setattr(shared.service, "fail", over)
    await operator.hold("t1")
    shared.pools.clear()
    await asyncio.sleep(6.0)

    assert not shared.service.failed
    assert (operator.reasons, operator.manager.counts(KEY).held) == (["LeaseFailed"], 0)
    assert not shared.records.kept
