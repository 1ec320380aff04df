"""The sentinel: the operator polls for a pool without workers, and loses no task that it receives."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from activity_operator.backlog.protocol import LeaseCounts, PollTarget, SourceProblemError
from activity_operator.core.decision import SentinelOrder
from tests.unit.activity_operator.backlog.fakes import KEY, TARGET, Polls, Scene
from tests.unit.activity_operator.virtual_time import elapsed, settle

REST = SentinelOrder(polls=2, take=2)
DENIED = SourceProblemError("AccessDenied", "allow states:GetActivityTask")
THROTTLED = SourceProblemError("Throttled", "ask for a higher quota", throttled=True)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    before = asyncio.all_tasks()
    scene = Scene(Polls())
    yield scene
    for task in asyncio.all_tasks() - before - {asyncio.current_task()}:
        task.cancel()
    await settle()


async def test_at_rest_two_polls_are_open_half_a_hold_apart(scene: Scene) -> None:
    scene.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(200.0)

    assert scene.polls.times == [0.0, 30.0, 60.0, 90.0, 120.0, 150.0, 180.0]
    assert scene.sentinels.facts(KEY).open_polls == 2


async def test_repeated_order_opens_no_more_polls(scene: Scene) -> None:
    for _ in range(100):
        scene.sentinels.order(KEY, REST, TARGET)
        await asyncio.sleep(0.1)

    assert scene.polls.times == [0.0]


async def test_received_task_is_handed_on_at_once(scene: Scene) -> None:
    scene.sentinels.order(KEY, REST, TARGET, "pool-1")
    await settle()
    scene.polls.put("t1")
    await settle()

    assert scene.received == [(KEY, "pool-1", TARGET, "t1")]
    assert elapsed() == 0.0


async def test_pool_that_may_take_one_lease_stops_polling_once_it_has_it(scene: Scene) -> None:
    scene.sentinels.order(KEY, SentinelOrder(polls=2, take=1), TARGET)
    await asyncio.sleep(1.0)
    scene.polls.put("t1")
    scene.polls.put("t2")
    await asyncio.sleep(300.0)

    assert scene.tokens == ["t1"]
    assert scene.sentinels.facts(KEY).open_polls == 0


async def test_poll_is_opened_again_when_a_lease_is_released(scene: Scene) -> None:
    scene.sentinels.order(KEY, SentinelOrder(polls=1, take=1), TARGET)
    await settle()
    scene.polls.put("t1")
    await settle()
    assert scene.sentinels.facts(KEY).open_polls == 0

    scene.holdings = LeaseCounts()
    scene.sentinels.leases_changed(KEY)
    await settle()
    assert scene.sentinels.facts(KEY).open_polls == 1


async def test_fan_out_takes_a_burst_at_once_up_to_the_order(scene: Scene) -> None:
    for number in range(40):
        scene.polls.put(f"t{number}")
    scene.sentinels.order(KEY, SentinelOrder(polls=10, take=25), TARGET)
    await settle()

    assert len(scene.tokens) == 25
    assert elapsed() == 0.0


async def test_lower_order_keeps_open_polls_and_hands_on_their_tasks(scene: Scene) -> None:
    scene.sentinels.order(KEY, SentinelOrder(polls=10, take=40), TARGET)
    await asyncio.sleep(1.0)
    scene.sentinels.order(KEY, SentinelOrder(), TARGET)
    scene.polls.put("t1")
    await asyncio.sleep(100.0)

    assert scene.tokens == ["t1"]
    assert scene.polls.aborted == 0
    assert len(scene.polls.opened) == 10


async def test_task_of_a_forgotten_pools_last_poll_is_handed_on(scene: Scene) -> None:
    scene.sentinels.order(KEY, REST, TARGET, "pool-1")
    await asyncio.sleep(1.0)
    scene.sentinels.forget(KEY)
    scene.polls.put("t1")
    await settle()

    assert scene.received == [(KEY, "pool-1", TARGET, "t1")]
    assert scene.sentinels.facts(KEY).open_polls == 0


async def test_stop_waits_for_open_polls_and_opens_none(scene: Scene) -> None:
    scene.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(40.0)
    stopping = asyncio.create_task(scene.sentinels.stop())
    await asyncio.sleep(10.0)
    scene.polls.put("t1")

    assert await stopping == 0
    assert scene.tokens == ["t1"]
    assert scene.polls.aborted == 0
    assert elapsed() == 90.0
    scene.sentinels.order(KEY, REST, TARGET)
    await settle()
    assert len(scene.polls.opened) == 2


async def test_stop_times_out_and_returns_the_number_of_open_polls(scene: Scene) -> None:
    scene.polls.hold = 10_000.0
    scene.sentinels.order(KEY, REST, TARGET)
    await settle()

    assert await scene.sentinels.stop(timeout_seconds=75.0) == 1
    assert scene.polls.aborted == 0


async def test_immediate_empty_answers_are_polled_once_a_second(scene: Scene) -> None:
    scene.polls.hold = 0.0
    scene.sentinels.order(KEY, SentinelOrder(polls=1, take=1), TARGET)
    await asyncio.sleep(10.5)

    assert len(scene.polls.opened) == 11


async def test_denied_poll_is_notified_once_and_retried_with_backoff(scene: Scene) -> None:
    scene.polls.always = DENIED
    scene.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(600.0)

    error = scene.sentinels.facts(KEY).error
    assert error is not None
    assert (error.reason, error.message) == (DENIED.reason, DENIED.message)
    assert scene.changes == [KEY]
    gaps = [round(later - earlier) for earlier, later in zip(scene.polls.times, scene.polls.times[1:], strict=False)]
    assert gaps[:8] == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_failing_source_is_polled_by_one_poll_at_a_time(scene: Scene) -> None:
    scene.sentinels.order(KEY, SentinelOrder(polls=10, take=40), TARGET)
    await asyncio.sleep(1.0)
    scene.polls.problems.append(DENIED)
    scene.polls.put("t1")
    await asyncio.sleep(50.0)
    assert scene.sentinels.facts(KEY).open_polls == 9
    assert len(scene.polls.opened) == 11


async def test_success_ends_the_backoff_at_once(scene: Scene) -> None:
    scene.sentinels.order(KEY, SentinelOrder(polls=3, take=40), TARGET)
    await asyncio.sleep(35.0)
    scene.polls.problems.append(DENIED)
    scene.polls.put("t1")
    await asyncio.sleep(0.5)
    scene.polls.put("t2")
    await settle()

    assert scene.polls.times == [0.0, 0.0, 0.0, 35.0, 35.5, 35.5]


async def test_late_error_of_a_forgotten_pool_is_not_notified(scene: Scene) -> None:
    scene.polls.problems.append(DENIED)
    scene.sentinels.order(KEY, REST, TARGET)
    await settle()
    scene.sentinels.forget(KEY)
    await asyncio.sleep(5.0)

    assert scene.changes == []


async def test_error_ends_with_the_next_success(scene: Scene) -> None:
    scene.polls.problems.append(DENIED)
    scene.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(2.0)
    assert scene.sentinels.facts(KEY).error is not None
    scene.polls.put("t1")
    await settle()

    assert scene.sentinels.facts(KEY).error is None
    assert scene.changes == [KEY, KEY]


async def test_few_throttled_polls_are_no_error(scene: Scene) -> None:
    scene.polls.problems.extend([THROTTLED] * 4)
    scene.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(200.0)

    assert scene.changes == []
    assert scene.sentinels.facts(KEY).open_polls == 2


async def test_lasting_throttling_is_an_error_with_backoff_up_to_30_seconds(scene: Scene) -> None:
    scene.polls.always = THROTTLED
    scene.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(600.0)

    error = scene.sentinels.facts(KEY).error
    assert error is not None
    assert error.reason == "Throttled"
    assert scene.changes == [KEY]
    assert round(scene.polls.times[-1] - scene.polls.times[-2]) == 30


async def test_error_is_dropped_when_polling_ends(scene: Scene) -> None:
    scene.polls.problems.append(DENIED)
    scene.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(0.5)
    scene.sentinels.order(KEY, SentinelOrder(), TARGET)

    assert scene.sentinels.facts(KEY).error is None
    assert scene.changes == [KEY, KEY]


async def test_new_target_is_polled_at_once_and_old_polls_are_handed_on(scene: Scene) -> None:
    elsewhere = PollTarget(TARGET.arn, region="eu-west-1")
    scene.sentinels.order(KEY, SentinelOrder(polls=1, take=2), TARGET)
    await asyncio.sleep(1.0)
    scene.sentinels.order(KEY, SentinelOrder(polls=1, take=2), elsewhere)
    await settle()
    scene.polls.put("t1")
    await settle()

    assert [target for *_, target in scene.polls.opened][:2] == [TARGET, elsewhere]
    assert scene.received[0][2] == TARGET


async def test_unexpected_error_does_not_end_polling(scene: Scene) -> None:
    scene.polls.problems.append(RuntimeError("a bug"))
    scene.sentinels.order(KEY, REST, TARGET)
    await asyncio.sleep(2.0)

    assert scene.sentinels.facts(KEY).open_polls == 1


async def test_500_pools_at_rest_have_one_asyncio_task_per_poll(scene: Scene) -> None:
    before = len(asyncio.all_tasks())
    for number in range(500):
        scene.sentinels.order(("media", f"pool-{number}"), REST, TARGET)
    await asyncio.sleep(31.0)

    assert len(asyncio.all_tasks()) - before == 1000
