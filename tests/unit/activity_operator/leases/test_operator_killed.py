"""The operator is killed at each await of the handover, and the next leader finishes it.

`operator/ARCHITECTURE.md` has the table of these moments.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activity_operator.backlog.protocol import Key, PollTarget
from activity_operator.backlog.sentinel import Sentinels
from activity_operator.core.decision import SentinelOrder
from activity_operator.leases.rules import GRANT_SECONDS, LeasePolicy
from activity_operator.leases.store import LeaseRecordRefusedError
from activity_worker.contract import ERROR_DELETED, HeldLease, LeasedTask, lease_id
from tests.unit.activity_operator.backlog.fakes import Polls
from tests.unit.activity_operator.leases.shared_state import POOL, TARGET, Operator, SharedState
from tests.unit.activity_operator.reports.builders import report
from tests.unit.activity_operator.virtual_time import settle, wall

LEASE = lease_id("t1")
ROOT = Path(__file__).parents[4]


@pytest.fixture
async def shared() -> AsyncIterator[SharedState]:
    shared = SharedState()
    before = asyncio.all_tasks()
    yield shared
    for task in asyncio.all_tasks() - before - {asyncio.current_task()}:
        task.cancel()
    await settle()


async def kill_and_replace(shared: SharedState, moment: str, operator: Operator) -> Operator:
    """Let the operator reach the moment, kill it there, and start the next leader."""
    await asyncio.sleep(3.0)
    await operator.kill()
    shared.records.stop_at = ""
    return await Operator.leading(shared)


async def finish(shared: SharedState, operator: Operator, sequence: int) -> None:
    """Repeat the claim to the new leader and run the task, until no record is left."""
    handed = await operator.answer(report(sequence=sequence, claims=(LEASE,)))
    assert [grant.task_token for grant in handed.granted] == ["t1"]
    await operator.answer(report(sequence=sequence + 1, busy=1, leases=(HeldLease(LEASE, 1.0),)))
    assert (await operator.answer(report(sequence=sequence + 2, released=(LEASE,)))).released == (LEASE,)
    assert not shared.records.kept


def test_architectures_table_names_every_test_of_a_killed_operator() -> None:
    page = (ROOT / "operator/ARCHITECTURE.md").read_text(encoding="utf-8").partition("### When the operator dies")[2]
    named = set(re.findall(r"\| `(\w+)` \|$", page.partition("\n## ")[0], re.MULTILINE))
    here = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}

    assert len(named) == 12
    assert named <= here


async def test_killed_during_a_poll_leaves_no_lease(shared: SharedState) -> None:
    first = await Operator.leading(shared)

    def receive(_key: Key, _uid: str, _target: PollTarget, task: LeasedTask) -> None:
        first.receive(task.token)

    sentinels = Sentinels(
        Polls(), holdings=first.manager.counts, on_task=receive, on_change=lambda _key: None, now=wall
    )
    sentinels.order(POOL.key, SentinelOrder(polls=2, take=2), TARGET)
    second = await kill_and_replace(shared, "", first)

    assert not shared.records.kept
    assert len(second.manager) == 0


async def test_killed_before_a_task_without_a_record_is_failed_leaves_no_lease(shared: SharedState) -> None:
    shared.records.broken, shared.service.unreachable = LeaseRecordRefusedError("413"), True
    first = await Operator.leading(shared)
    first.receive("t1")
    second = await kill_and_replace(shared, "", first)

    assert not shared.records.kept
    assert len(second.manager) == 0
    beats = len(shared.service.beats.get("t1", ()))
    await asyncio.sleep(60.0)
    assert len(shared.service.beats.get("t1", ())) == beats


async def test_killed_before_the_record_leaves_no_lease(shared: SharedState) -> None:
    shared.records.stop_at = "before create"
    first = await Operator.leading(shared)
    first.receive("t1")
    second = await kill_and_replace(shared, "before create", first)

    assert not shared.records.kept
    assert len(second.manager) == 0


@pytest.mark.parametrize("hours", [0, 1])
async def test_killed_after_the_record_next_leader_heartbeats_and_offers_it(shared: SharedState, hours: int) -> None:
    shared.records.stop_at = "after create"
    first = await Operator.leading(shared)
    first.receive("t1")
    await asyncio.sleep(1.0)
    await first.kill()
    await asyncio.sleep(3600.0 * hours)
    shared.records.stop_at = ""
    second = await Operator.leading(shared)
    await settle()
    await asyncio.sleep(0.1)

    assert len(shared.service.beats["t1"]) == 1
    assert (await second.answer(report())).offers == (LEASE,)
    await finish(shared, second, 2)


async def test_gap_between_heartbeats_of_two_leaders_is_below_30_seconds(shared: SharedState) -> None:
    first = await Operator.leading(shared)
    first.manager.set_policy(POOL.key, LeasePolicy(heartbeat_seconds=10.0))
    await first.hold("t1")
    await asyncio.sleep(19.9)
    await first.kill()
    await asyncio.sleep(19.0)  # the Lease expires, and the next leader lists everything
    await Operator.leading(shared)
    await asyncio.sleep(0.1)

    *_, last, next_one = shared.service.beats["t1"]
    assert next_one - last < 25.0, "less than 5 s of margin are left"


async def test_offer_of_the_former_leader_can_be_claimed_from_the_new_one(shared: SharedState) -> None:
    first = await Operator.leading(shared)
    await first.hold("t1")
    await first.answer(report())
    await first.kill()

    await finish(shared, await Operator.leading(shared), 2)


@pytest.mark.parametrize("moment", ["before claim", "after claim"])
async def test_claim_without_an_answer_is_repeated_to_the_next_leader(shared: SharedState, moment: str) -> None:
    first = await Operator.leading(shared)
    await first.hold("t1")
    shared.records.stop_at = moment
    await first.answer(report(claims=(LEASE,)))
    second = await kill_and_replace(shared, moment, first)

    await finish(shared, second, 2)


async def test_claim_written_without_an_answer_is_granted_at_the_retry(shared: SharedState) -> None:
    operator = await Operator.leading(shared)
    await operator.hold("t1")
    shared.records.stop_at = "after claim"
    assert (await operator.answer(report(claims=(LEASE,)))).granted == ()
    shared.records.stop_at = ""

    await finish(shared, operator, 2)


async def test_grant_with_a_lost_reply_is_repeated_only_to_its_owner(shared: SharedState) -> None:
    first = await Operator.leading(shared)
    await first.hold("t1")
    await first.answer(report(claims=(LEASE,)))
    await first.kill()
    second = await Operator.leading(shared)
    other_worker = report(pod_uid="uid-b", incarnation="b-first", claims=(LEASE,))

    assert (await second.answer(other_worker)).refused == (LEASE,)
    await finish(shared, second, 2)


async def test_next_leader_sends_heartbeats_until_the_owner_reports_the_lease(shared: SharedState) -> None:
    first = await Operator.leading(shared)
    await first.hold("t1")
    await first.answer(report(claims=(LEASE,)))
    await first.kill()
    second = await Operator.leading(shared)
    began = wall()
    await asyncio.sleep(12.0)
    beats = shared.service.beats["t1"]
    assert beats[0] <= began + 0.1
    assert len(beats) == 3

    await second.answer(report(sequence=2, busy=1, leases=(HeldLease(LEASE, 1.0),)))
    await asyncio.sleep(100.0)
    assert len(beats) == 3


async def test_change_of_leader_does_not_affect_a_running_task(shared: SharedState) -> None:
    first = await Operator.leading(shared)
    await first.hold("t1")
    await first.answer(report(claims=(LEASE,)))
    await first.kill()
    second = await Operator.leading(shared)
    began = wall()
    await asyncio.sleep(600.0)

    assert shared.service.beats["t1"][-1] <= began + GRANT_SECONDS
    assert second.manager.counts(("media", "resize")).claimed == 1
    await second.answer(report(sequence=2, busy=1, leases=(HeldLease(LEASE, 1.0),)))
    assert second.manager.counts(("media", "resize")).total == 0


@pytest.mark.parametrize("moment", ["before delete", "after delete"])
async def test_release_without_acknowledgement_is_repeated_to_the_next_leader(shared: SharedState, moment: str) -> None:
    first = await Operator.leading(shared)
    await first.hold("t1")
    await first.answer(report(claims=(LEASE,)))
    shared.records.stop_at = moment
    assert (await first.answer(report(sequence=2, released=(LEASE,)))).released == ()
    second = await kill_and_replace(shared, moment, first)

    assert (await second.answer(report(sequence=3, released=(LEASE,)))).released == (LEASE,)
    assert not shared.records.kept


async def test_next_leader_detects_a_finished_task_again(shared: SharedState) -> None:
    first = await Operator.leading(shared)
    await first.hold("t1")
    shared.service.over.add("t1")
    shared.records.stop_at = "before delete"
    await asyncio.sleep(12.0)
    second = await kill_and_replace(shared, "before delete", first)
    await asyncio.sleep(1.0)

    assert second.reasons == ["LeaseExpired"]
    assert not shared.records.kept


@pytest.mark.parametrize("failed_already", [False, True])
async def test_deleted_pools_task_is_failed_by_the_next_leader(shared: SharedState, failed_already: bool) -> None:
    first = await Operator.leading(shared)
    await first.hold("t1")
    if failed_already:
        shared.records.stop_at = "before delete"
        shared.pools.clear()
        await asyncio.sleep(6.0)
        assert shared.service.failed["t1"][0] == ERROR_DELETED
    await first.kill()
    shared.pools.clear()
    shared.records.stop_at = ""
    await Operator.leading(shared)
    await asyncio.sleep(8.0)

    assert shared.service.failed["t1"][0] == ERROR_DELETED
    assert not shared.records.kept


async def test_next_leader_detects_a_lost_owner(shared: SharedState) -> None:
    first = await Operator.leading(shared)
    await first.hold("t1")
    await first.answer(report(claims=(LEASE,)))
    await first.kill()
    shared.pods.discard("uid-a")
    second = await Operator.leading(shared)
    await asyncio.sleep(5.0)

    assert second.reasons == ["LeaseOwnerGone"]
    assert not shared.records.kept


async def test_new_leader_reads_its_records_before_its_term_begins(shared: SharedState) -> None:
    shared.records.down = True
    operator = Operator(shared)
    term = asyncio.create_task(operator.manager.begin_term())
    await asyncio.sleep(60.0)
    assert not term.done()

    shared.records.down = False
    await asyncio.sleep(11.0)
    assert term.done()
