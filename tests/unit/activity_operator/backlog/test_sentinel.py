"""The operator polls for a pool that has nobody to do it, and loses nothing that it is handed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from activity_operator.backlog.protocol import Holdings, PollTarget, SourceProblemError
from activity_operator.core.decision import SentinelOrder
from tests.unit.activity_operator.backlog.fakes import KEY, TARGET, Desk, Polls
from tests.unit.activity_operator.virtual_time import elapsed, settle

REST = SentinelOrder(polls=2, take=2)
DENIED = SourceProblemError("AccessDenied", "allow states:GetActivityTask")
THROTTLED = SourceProblemError("Throttled", "ask for a higher quota", throttled=True)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    before = asyncio.all_tasks()
    desk = Desk(Polls())
    yield desk
    for task in asyncio.all_tasks() - before - {asyncio.current_task()}:
        task.cancel()
    await settle()


async def test_at_rest_two_polls_are_open_half_a_hold_apart_and_stay_so(desk: Desk) -> None:
    desk.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(200.0)

    assert desk.polls.times == [0.0, 30.0, 60.0, 90.0, 120.0, 150.0, 180.0]
    assert desk.sentinels.said(KEY).open_polls == 2


async def test_the_same_order_again_opens_nothing_more(desk: Desk) -> None:
    for _ in range(100):
        desk.sentinels.order(KEY, REST, TARGET)
        await asyncio.sleep(0.1)

    assert desk.polls.times == [0.0]


async def test_what_a_poll_brings_is_handed_on_at_once_and_counted(desk: Desk) -> None:
    desk.sentinels.order(KEY, REST, TARGET, "pool-1")
    await settle()
    desk.polls.put("t1")
    await settle()

    assert desk.received == [(KEY, "pool-1", TARGET, "t1")]
    assert elapsed() == 0.0


async def test_a_pool_that_may_hold_one_lease_polls_no_more_once_it_has_it(desk: Desk) -> None:
    desk.sentinels.order(KEY, SentinelOrder(polls=2, take=1), TARGET)
    await asyncio.sleep(1.0)
    desk.polls.put("t1")
    desk.polls.put("t2")
    await asyncio.sleep(300.0)

    assert desk.tokens == ["t1"]
    assert desk.sentinels.said(KEY).open_polls == 0


async def test_a_poll_is_opened_again_when_a_lease_is_gone(desk: Desk) -> None:
    desk.sentinels.order(KEY, SentinelOrder(polls=1, take=1), TARGET)
    await settle()
    desk.polls.put("t1")
    await settle()
    assert desk.sentinels.said(KEY).open_polls == 0

    desk.holdings = Holdings()
    desk.sentinels.leases_changed(KEY)
    await settle()
    assert desk.sentinels.said(KEY).open_polls == 1


async def test_a_fan_out_takes_a_burst_at_once_and_no_more_than_it_may(desk: Desk) -> None:
    for number in range(40):
        desk.polls.put(f"t{number}")
    desk.sentinels.order(KEY, SentinelOrder(polls=10, take=25), TARGET)
    await settle()

    assert len(desk.tokens) == 25
    assert elapsed() == 0.0


async def test_lowering_the_order_aborts_no_open_poll_and_hands_on_what_it_brings(desk: Desk) -> None:
    desk.sentinels.order(KEY, SentinelOrder(polls=10, take=40), TARGET)
    await asyncio.sleep(1.0)
    desk.sentinels.order(KEY, SentinelOrder(), TARGET)
    desk.polls.put("t1")
    await asyncio.sleep(100.0)

    assert desk.tokens == ["t1"]
    assert desk.polls.aborted == 0
    assert len(desk.polls.opened) == 10


async def test_a_forgotten_pools_last_poll_is_still_handed_on(desk: Desk) -> None:
    desk.sentinels.order(KEY, REST, TARGET, "pool-1")
    await asyncio.sleep(1.0)
    desk.sentinels.forget(KEY)
    desk.polls.put("t1")
    await settle()

    assert desk.received == [(KEY, "pool-1", TARGET, "t1")]
    assert desk.sentinels.said(KEY).open_polls == 0


async def test_stopping_waits_for_open_polls_and_opens_none(desk: Desk) -> None:
    desk.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(40.0)
    stopping = asyncio.create_task(desk.sentinels.stop())
    await asyncio.sleep(10.0)
    desk.polls.put("t1")

    assert await stopping == 0
    assert desk.tokens == ["t1"]
    assert desk.polls.aborted == 0
    assert elapsed() == 90.0
    desk.sentinels.order(KEY, REST, TARGET)
    await settle()
    assert len(desk.polls.opened) == 2


async def test_stopping_gives_up_after_a_while_and_says_how_many_are_open(desk: Desk) -> None:
    desk.polls.hold = 10_000.0
    desk.sentinels.order(KEY, REST, TARGET)
    await settle()

    assert await desk.sentinels.stop(timeout_seconds=75.0) == 1
    assert desk.polls.aborted == 0


async def test_a_service_that_answers_empty_at_once_is_asked_once_a_second(desk: Desk) -> None:
    desk.polls.hold = 0.0
    desk.sentinels.order(KEY, SentinelOrder(polls=1, take=1), TARGET)
    await asyncio.sleep(10.5)

    assert len(desk.polls.opened) == 11


async def test_a_denied_poll_is_said_once_and_tried_again_ever_more_slowly(desk: Desk) -> None:
    desk.polls.always = DENIED
    desk.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(600.0)

    error = desk.sentinels.said(KEY).error
    assert error is not None
    assert (error.reason, error.message) == (DENIED.reason, DENIED.message)
    assert desk.changes == [KEY]
    gaps = [round(later - earlier) for earlier, later in zip(desk.polls.times, desk.polls.times[1:], strict=False)]
    assert gaps[:8] == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_a_source_in_trouble_is_asked_by_one_poll_at_a_time(desk: Desk) -> None:
    desk.sentinels.order(KEY, SentinelOrder(polls=10, take=40), TARGET)
    await asyncio.sleep(1.0)
    desk.polls.problems.append(DENIED)
    desk.polls.put("t1")
    await asyncio.sleep(50.0)
    assert desk.sentinels.said(KEY).open_polls == 9
    assert len(desk.polls.opened) == 11


async def test_a_success_ends_the_back_off_at_once(desk: Desk) -> None:
    desk.sentinels.order(KEY, SentinelOrder(polls=3, take=40), TARGET)
    await asyncio.sleep(35.0)
    desk.polls.problems.append(DENIED)
    desk.polls.put("t1")
    await asyncio.sleep(0.5)
    desk.polls.put("t2")
    await settle()

    assert desk.polls.times == [0.0, 0.0, 0.0, 35.0, 35.5, 35.5]


async def test_the_late_error_of_a_forgotten_pool_is_nobodys(desk: Desk) -> None:
    desk.polls.problems.append(DENIED)
    desk.sentinels.order(KEY, REST, TARGET)
    await settle()
    desk.sentinels.forget(KEY)
    await asyncio.sleep(5.0)

    assert desk.changes == []


async def test_an_error_is_over_with_the_next_success(desk: Desk) -> None:
    desk.polls.problems.append(DENIED)
    desk.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(2.0)
    assert desk.sentinels.said(KEY).error is not None
    desk.polls.put("t1")
    await settle()

    assert desk.sentinels.said(KEY).error is None
    assert desk.changes == [KEY, KEY]


async def test_a_few_throttled_polls_are_no_error(desk: Desk) -> None:
    desk.polls.problems.extend([THROTTLED] * 4)
    desk.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(200.0)

    assert desk.changes == []
    assert desk.sentinels.said(KEY).open_polls == 2


async def test_lasting_throttling_is_said_and_backs_off_to_thirty_seconds(desk: Desk) -> None:
    desk.polls.always = THROTTLED
    desk.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(600.0)

    error = desk.sentinels.said(KEY).error
    assert error is not None
    assert error.reason == "Throttled"
    assert desk.changes == [KEY]
    assert round(desk.polls.times[-1] - desk.polls.times[-2]) == 30


async def test_the_error_of_a_source_that_is_not_asked_any_more_is_dropped(desk: Desk) -> None:
    desk.polls.problems.append(DENIED)
    desk.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(0.5)
    desk.sentinels.order(KEY, SentinelOrder(), TARGET)

    assert desk.sentinels.said(KEY).error is None
    assert desk.changes == [KEY, KEY]


async def test_a_new_target_begins_anew_and_the_old_ones_poll_is_handed_on(desk: Desk) -> None:
    elsewhere = PollTarget(TARGET.arn, region="eu-west-1")
    desk.sentinels.order(KEY, SentinelOrder(polls=1, take=2), TARGET)
    await asyncio.sleep(1.0)
    desk.sentinels.order(KEY, SentinelOrder(polls=1, take=2), elsewhere)
    await settle()
    desk.polls.put("t1")
    await settle()

    assert [target for *_, target in desk.polls.opened][:2] == [TARGET, elsewhere]
    assert desk.received[0][2] == TARGET


async def test_a_fault_of_ours_stops_no_pool_for_good(desk: Desk) -> None:
    desk.polls.problems.append(RuntimeError("a bug"))
    desk.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(2.0)

    assert desk.sentinels.said(KEY).open_polls == 1


async def test_a_thousand_pools_at_rest_have_one_task_a_poll(desk: Desk) -> None:
    before = len(asyncio.all_tasks())
    for number in range(500):
        desk.sentinels.order(("media", f"pool-{number}"), REST, TARGET)
    await asyncio.sleep(31.0)

    assert len(asyncio.all_tasks()) - before == 1000
