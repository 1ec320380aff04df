"""The sentinel: the operator polls for a pool without workers, and loses no task that it receives."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from activity_operator.backlog.protocol import LeaseCounts, PollTarget, SourceProblemError
from activity_operator.core.decision import SentinelOrder
from tests.unit.activity_operator.backlog.fakes import KEY, TARGET, PolledSentinels, Polls
from tests.unit.activity_operator.virtual_time import elapsed, settle

REST = SentinelOrder(polls=2, take=2)
DENIED = SourceProblemError("AccessDenied", "allow states:GetActivityTask")
THROTTLED = SourceProblemError("Throttled", "ask for a higher quota", throttled=True)


@pytest.fixture
async def polled() -> AsyncIterator[PolledSentinels]:
    before = asyncio.all_tasks()
    polled = PolledSentinels(Polls())
    yield polled
    for task in asyncio.all_tasks() - before - {asyncio.current_task()}:
        task.cancel()
    await settle()


async def test_at_rest_two_polls_are_open_half_a_hold_apart(polled: PolledSentinels) -> None:
    polled.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(200.0)

    assert polled.polls.times == [0.0, 30.0, 60.0, 90.0, 120.0, 150.0, 180.0]
    assert polled.sentinels.facts(KEY).open_polls == 2


async def test_repeated_order_opens_no_more_polls(polled: PolledSentinels) -> None:
    for _ in range(100):
        polled.sentinels.order(KEY, REST, TARGET)
        await asyncio.sleep(0.1)

    assert polled.polls.times == [0.0]


async def test_received_task_is_handed_on_at_once(polled: PolledSentinels) -> None:
    polled.sentinels.order(KEY, REST, TARGET, "pool-1")
    await settle()
    polled.polls.put("t1")
    await settle()

    assert polled.received == [(KEY, "pool-1", TARGET, "t1")]
    assert elapsed() == 0.0


async def test_pool_that_may_take_one_lease_stops_polling_once_it_has_it(polled: PolledSentinels) -> None:
    polled.sentinels.order(KEY, SentinelOrder(polls=2, take=1), TARGET)
    await asyncio.sleep(1.0)
    polled.polls.put("t1")
    polled.polls.put("t2")
    await asyncio.sleep(300.0)

    assert polled.tokens == ["t1"]
    assert polled.sentinels.facts(KEY).open_polls == 0


async def test_poll_is_opened_again_when_a_lease_is_released(polled: PolledSentinels) -> None:
    polled.sentinels.order(KEY, SentinelOrder(polls=1, take=1), TARGET)
    await settle()
    polled.polls.put("t1")
    await settle()
    assert polled.sentinels.facts(KEY).open_polls == 0

    polled.holdings = LeaseCounts()
    polled.sentinels.leases_changed(KEY)
    await settle()
    assert polled.sentinels.facts(KEY).open_polls == 1


async def test_fan_out_takes_a_burst_at_once_up_to_the_order(polled: PolledSentinels) -> None:
    for number in range(40):
        polled.polls.put(f"t{number}")
    polled.sentinels.order(KEY, SentinelOrder(polls=10, take=25), TARGET)
    await settle()

    assert len(polled.tokens) == 25
    assert elapsed() == 0.0


async def test_lower_order_keeps_open_polls_and_hands_on_their_tasks(polled: PolledSentinels) -> None:
    polled.sentinels.order(KEY, SentinelOrder(polls=10, take=40), TARGET)
    await asyncio.sleep(1.0)
    polled.sentinels.order(KEY, SentinelOrder(), TARGET)
    polled.polls.put("t1")
    await asyncio.sleep(100.0)

    assert polled.tokens == ["t1"]
    assert polled.polls.aborted == 0
    assert len(polled.polls.opened) == 10


async def test_task_of_a_forgotten_pools_last_poll_is_handed_on(polled: PolledSentinels) -> None:
    polled.sentinels.order(KEY, REST, TARGET, "pool-1")
    await asyncio.sleep(1.0)
    polled.sentinels.forget(KEY)
    polled.polls.put("t1")
    await settle()

    assert polled.received == [(KEY, "pool-1", TARGET, "t1")]
    assert polled.sentinels.facts(KEY).open_polls == 0


async def test_stop_waits_for_open_polls_and_opens_none(polled: PolledSentinels) -> None:
    polled.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(40.0)
    stopping = asyncio.create_task(polled.sentinels.stop())
    await asyncio.sleep(10.0)
    polled.polls.put("t1")

    assert await stopping == 0
    assert polled.tokens == ["t1"]
    assert polled.polls.aborted == 0
    assert elapsed() == 90.0
    polled.sentinels.order(KEY, REST, TARGET)
    await settle()
    assert len(polled.polls.opened) == 2


async def test_stop_times_out_and_returns_the_number_of_open_polls(polled: PolledSentinels) -> None:
    polled.polls.hold = 10_000.0
    polled.sentinels.order(KEY, REST, TARGET)
    await settle()

    assert await polled.sentinels.stop(timeout_seconds=75.0) == 1
    assert polled.polls.aborted == 0


async def test_immediate_empty_answers_are_polled_once_a_second(polled: PolledSentinels) -> None:
    polled.polls.hold = 0.0
    polled.sentinels.order(KEY, SentinelOrder(polls=1, take=1), TARGET)
    await asyncio.sleep(10.5)

    assert len(polled.polls.opened) == 11


async def test_denied_poll_is_notified_once_and_retried_with_backoff(polled: PolledSentinels) -> None:
    polled.polls.always = DENIED
    polled.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(600.0)

    error = polled.sentinels.facts(KEY).error
    assert error is not None
    assert (error.reason, error.message) == (DENIED.reason, DENIED.message)
    assert polled.changes == [KEY]
    gaps = [round(later - earlier) for earlier, later in zip(polled.polls.times, polled.polls.times[1:], strict=False)]
    assert gaps[:8] == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_failing_source_is_polled_by_one_poll_at_a_time(polled: PolledSentinels) -> None:
    polled.sentinels.order(KEY, SentinelOrder(polls=10, take=40), TARGET)
    await asyncio.sleep(1.0)
    polled.polls.problems.append(DENIED)
    polled.polls.put("t1")
    await asyncio.sleep(50.0)
    assert polled.sentinels.facts(KEY).open_polls == 9
    assert len(polled.polls.opened) == 11


async def test_success_ends_the_backoff_at_once(polled: PolledSentinels) -> None:
    polled.sentinels.order(KEY, SentinelOrder(polls=3, take=40), TARGET)
    await asyncio.sleep(35.0)
    polled.polls.problems.append(DENIED)
    polled.polls.put("t1")
    await asyncio.sleep(0.5)
    polled.polls.put("t2")
    await settle()

    assert polled.polls.times == [0.0, 0.0, 0.0, 35.0, 35.5, 35.5]


@pytest.mark.parametrize("end", [None, THROTTLED], ids=["empty", "throttled"])
async def test_pool_is_told_when_its_last_poll_ends_early(polled: PolledSentinels, end: Exception | None) -> None:
    """Its workers stand by while that poll is open: they have to poll again at once."""
    polled.polls.hold = 20.0
    polled.sentinels.order(KEY, SentinelOrder(polls=1, take=1), TARGET)
    await settle()
    polled.sentinels.order(KEY, SentinelOrder(), TARGET)
    if end is not None:
        polled.polls.waiting[0].set_exception(end)
    await asyncio.sleep(21.0)

    assert polled.sentinels.facts(KEY).open_polls == 0
    assert polled.changes == [KEY]


async def test_pool_is_told_when_its_last_poll_is_throttled(polled: PolledSentinels) -> None:
    """The next poll follows seconds later, and no condition shows a throttled poll."""
    polled.sentinels.order(KEY, SentinelOrder(polls=1, take=1), TARGET)
    await settle()
    polled.polls.waiting[0].set_exception(THROTTLED)
    await settle()

    assert polled.changes == [KEY]


async def test_pool_is_told_when_its_open_polls_are_those_of_another_target(polled: PolledSentinels) -> None:
    polled.sentinels.order(KEY, SentinelOrder(polls=1, take=1), TARGET)
    await settle()
    polled.sentinels.order(KEY, SentinelOrder(), PollTarget(TARGET.arn, region="eu-west-1"))

    assert polled.sentinels.facts(KEY).open_polls == 0
    assert polled.changes == [KEY]


async def test_polls_that_follow_one_another_tell_the_pool_nothing(polled: PolledSentinels) -> None:
    polled.sentinels.order(KEY, SentinelOrder(polls=1, take=1), TARGET)
    await asyncio.sleep(600.0)

    assert polled.changes == []


async def test_late_error_of_a_forgotten_pool_is_not_notified(polled: PolledSentinels) -> None:
    polled.polls.problems.append(DENIED)
    polled.sentinels.order(KEY, REST, TARGET)
    await settle()
    polled.sentinels.forget(KEY)
    await asyncio.sleep(5.0)

    assert polled.changes == []


async def test_error_ends_with_the_next_success(polled: PolledSentinels) -> None:
    polled.polls.problems.append(DENIED)
    polled.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(2.0)
    assert polled.sentinels.facts(KEY).error is not None
    polled.polls.put("t1")
    await settle()

    assert polled.sentinels.facts(KEY).error is None
    assert polled.changes == [KEY, KEY]


async def test_few_throttled_polls_are_no_error(polled: PolledSentinels) -> None:
    polled.polls.problems.extend([THROTTLED] * 4)
    polled.sentinels.order(KEY, REST, TARGET)
    seen = set()
    for _ in range(200):
        await asyncio.sleep(1.0)
        seen.add(polled.sentinels.facts(KEY).error)

    assert seen == {None}
    assert polled.sentinels.facts(KEY).open_polls == 2


async def test_lasting_throttling_is_an_error_with_backoff_up_to_30_seconds(polled: PolledSentinels) -> None:
    polled.polls.always = THROTTLED
    polled.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(600.0)

    error = polled.sentinels.facts(KEY).error
    assert error is not None
    assert error.reason == "Throttled"
    assert polled.changes == [KEY] * 5, "each of the four throttled polls before it was the only open one"
    assert round(polled.polls.times[-1] - polled.polls.times[-2]) == 30


async def test_error_is_dropped_when_polling_ends(polled: PolledSentinels) -> None:
    polled.polls.problems.append(DENIED)
    polled.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(0.5)
    polled.sentinels.order(KEY, SentinelOrder(), TARGET)

    assert polled.sentinels.facts(KEY).error is None
    assert polled.changes == [KEY, KEY]


async def test_new_target_is_polled_at_once_and_old_polls_are_handed_on(polled: PolledSentinels) -> None:
    elsewhere = PollTarget(TARGET.arn, region="eu-west-1")
    polled.sentinels.order(KEY, SentinelOrder(polls=1, take=2), TARGET)
    await asyncio.sleep(1.0)
    polled.sentinels.order(KEY, SentinelOrder(polls=1, take=2), elsewhere)
    await settle()
    polled.polls.put("t1")
    await settle()

    assert [target for *_, target in polled.polls.opened][:2] == [TARGET, elsewhere]
    assert polled.received[0][2] == TARGET


async def test_unexpected_error_does_not_end_polling(polled: PolledSentinels) -> None:
    polled.polls.problems.append(RuntimeError("a bug"))
    polled.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(2.0)

    assert polled.sentinels.facts(KEY).open_polls == 1


async def test_500_pools_at_rest_have_one_asyncio_task_per_poll(polled: PolledSentinels) -> None:
    before = len(asyncio.all_tasks())
    for number in range(500):
        polled.sentinels.order(("media", f"pool-{number}"), REST, TARGET)
    await asyncio.sleep(31.0)

    assert len(asyncio.all_tasks()) - before == 1000
