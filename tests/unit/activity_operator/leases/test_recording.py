"""A task is recorded, or failed with a clear error: no error leaves it with heartbeats and without an offer."""

import asyncio

import pytest

from activity_operator.leases.recorder import RECORD_PATIENCE_SECONDS
from activity_operator.leases.store import LeaseRecordRefusedError
from activity_worker.contract import ERROR_NOT_RECORDED
from tests.unit.activity_operator.leases.shared_state import POOL, Operator, SharedState
from tests.unit.activity_operator.reports.builders import report

KEY = POOL.key
REFUSED = LeaseRecordRefusedError("422 Invalid")


async def test_record_that_is_refused_for_good_fails_its_task(shared: SharedState, operator: Operator) -> None:
    shared.records.broken = REFUSED
    operator.receive("t1")
    await asyncio.sleep(1.0)

    error, cause = shared.service.failed["t1"]
    assert error == ERROR_NOT_RECORDED
    assert "media/resize" in cause
    assert "1 MiB" in cause
    assert operator.reasons == ["LeaseFailed"]
    assert len(operator.manager) == 0


async def test_task_with_a_refused_record_is_failed_until_the_service_answers(
    shared: SharedState, operator: Operator
) -> None:
    shared.records.broken, shared.service.unreachable = REFUSED, True
    lease = operator.receive("t1")
    await asyncio.sleep(60.0)
    assert (await operator.answer(report(claims=(lease,)))).refused == (lease,)
    assert (await operator.answer(report(sequence=2))).offers == ()

    shared.service.unreachable = False
    await asyncio.sleep(11.0)
    assert shared.service.failed["t1"][0] == ERROR_NOT_RECORDED


async def test_unexpected_error_while_recording_is_retried(shared: SharedState, operator: Operator) -> None:
    shared.records.broken = RuntimeError("a bug")
    lease = operator.receive("t1")
    await asyncio.sleep(30.0)
    assert (await operator.answer(report())).offers == ()

    shared.records.broken = None
    await asyncio.sleep(11.0)
    assert (await operator.answer(report(sequence=2))).offers == (lease,)


async def test_error_that_lasts_fails_the_task_and_ends_its_heartbeats(shared: SharedState, operator: Operator) -> None:
    shared.records.broken = RuntimeError("a bug")
    operator.receive("t1")
    await asyncio.sleep(RECORD_PATIENCE_SECONDS + 20.0)

    assert shared.service.failed["t1"][0] == ERROR_NOT_RECORDED
    assert len(operator.manager) == 0
    beats = len(shared.service.beats["t1"])
    await asyncio.sleep(100.0)
    assert len(shared.service.beats["t1"]) == beats


async def test_record_behind_odd_answers_is_found_and_its_task_runs(shared: SharedState, operator: Operator) -> None:
    """Each write succeeds, but its answer is no Secret, as from a broken proxy."""
    shared.records.broken, shared.records.stored_anyway = KeyError("metadata"), True
    lease = operator.receive("t1")
    await asyncio.sleep(RECORD_PATIENCE_SECONDS + 20.0)

    assert not shared.service.failed
    assert (await operator.answer(report())).offers == (lease,)


async def test_lease_that_can_be_neither_written_nor_read_is_left_to_the_service(
    shared: SharedState, operator: Operator
) -> None:
    """A record may exist, and another operator's worker may run its task, so nothing is failed."""
    shared.records.broken = shared.records.unreadable = RuntimeError("a bug")
    operator.receive("t1")
    await asyncio.sleep(RECORD_PATIENCE_SECONDS + 20.0)

    assert not shared.service.failed
    assert len(operator.manager) == 0


async def test_former_leader_does_not_fail_a_task_that_it_could_not_record(
    shared: SharedState, operator: Operator
) -> None:
    shared.records.broken = RuntimeError("a bug")
    operator.receive("t1")
    await asyncio.sleep(1.0)
    operator.manager.end_term()
    await asyncio.sleep(RECORD_PATIENCE_SECONDS + 20.0)

    assert not shared.service.failed
    assert len(operator.manager) == 0


async def test_operator_that_ends_reports_its_unrecorded_leases(shared: SharedState, operator: Operator) -> None:
    shared.records.broken = RuntimeError("a bug")
    operator.receive("t1")
    await asyncio.sleep(1.0)

    assert await operator.manager.close(5.0) == 1


async def test_payload_with_a_lone_surrogate_is_recorded_and_granted(shared: SharedState, operator: Operator) -> None:
    payload = '{"name": "\ud800"}'
    lease = operator.receive("t1", payload)
    await asyncio.sleep(1.0)

    granted = (await operator.answer(report(claims=(lease,)))).granted
    assert [grant.input for grant in granted] == [payload]


async def test_unexpected_heartbeat_error_does_not_end_the_heartbeats(shared: SharedState, operator: Operator) -> None:
    await operator.hold("t1")
    shared.service.odd = RuntimeError("a bug")
    await asyncio.sleep(20.0)
    shared.service.odd = None
    before = len(shared.service.beats["t1"])
    await asyncio.sleep(20.0)

    assert len(shared.service.beats["t1"]) >= before + 3


async def test_unexpected_error_of_the_service_gives_up_a_failure_in_time(
    shared: SharedState, operator: Operator
) -> None:
    await operator.hold("t1")
    shared.pools.clear()
    shared.service.odd = RuntimeError("a bug")
    await asyncio.sleep(1000.0)

    assert operator.reasons == ["LeaseFailed"]
    assert not shared.records.kept


async def test_unexpected_error_of_a_check_does_not_end_the_checks(
    shared: SharedState, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await operator.hold("t1")
    with monkeypatch.context() as patched:
        patched.setattr(operator.manager.endings, "check_all", lambda: 1 / 0)
        await asyncio.sleep(5.0)
    shared.pools.clear()
    await asyncio.sleep(8.0)

    assert "t1" in shared.service.failed


async def test_unexpected_error_of_a_listing_does_not_end_the_listings(
    shared: SharedState, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(shared.records, "list", broken)
        await asyncio.sleep(12.0)
    former = Operator(shared)
    lease = former.receive("t1")
    await asyncio.sleep(40.0)

    assert (await operator.answer(report())).offers == (lease,)


async def test_unexpected_error_of_a_claim_leaves_the_offer_open(
    shared: SharedState, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    (lease,) = await operator.hold("t1")
    with monkeypatch.context() as patched:
        patched.setattr(shared.records, "claim", broken)
        assert (await operator.answer(report(claims=(lease,)))).offers == (lease,)

    assert len((await operator.answer(report(sequence=2, claims=(lease,)))).granted) == 1


async def test_unexpected_error_of_a_removal_is_retried(
    shared: SharedState, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    await operator.hold("t1")
    with monkeypatch.context() as patched:
        patched.setattr(shared.records, "delete", broken)
        shared.pools.clear()
        await asyncio.sleep(20.0)
        assert shared.records.kept
    await asyncio.sleep(11.0)

    assert not shared.records.kept
