"""Tasks of the fake: tokens, time-outs and polls."""

import asyncio
from collections.abc import Callable

import pytest

from activity_worker.testing.fake_clock import VirtualClock
from activity_worker.testing.fake_tasks import FakeActivity, FakeServiceError, FakeTask, FakeTasks

ARN = "arn:aws:states:us-east-1:123456789012:activity:resize"
NO_LIMIT = 1000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def tasks(clock: VirtualClock) -> FakeTasks:
    return FakeTasks(clock, lambda: None)


@pytest.fixture
def activity(tasks: FakeTasks) -> FakeActivity:
    return tasks.create_activity(ARN)


async def started(tasks: FakeTasks, activity: FakeActivity, **options: float) -> FakeTask:
    tasks.schedule(activity, "{}", **options)
    task = await tasks.take(activity, "w", 60, NO_LIMIT)
    assert task is not None
    return task


async def test_arriving_task_wakes_the_oldest_open_poll(tasks: FakeTasks, activity: FakeActivity) -> None:
    polls = [asyncio.create_task(tasks.take(activity, name, 60, NO_LIMIT)) for name in "ab"]
    await asyncio.sleep(0)
    tasks.schedule(activity, "{}")

    first = await polls[0]

    assert first is not None
    assert first.worker_name == "a"
    assert not polls[1].done()
    tasks.release_polls()
    assert await polls[1] is None


async def test_poll_is_held_for_its_time_and_ends_empty(
    tasks: FakeTasks, activity: FakeActivity, clock: VirtualClock
) -> None:
    poll = asyncio.create_task(tasks.take(activity, "w", 60, NO_LIMIT))
    await asyncio.sleep(0)
    clock.advance(59.9)
    await asyncio.sleep(0)
    assert not poll.done()

    clock.advance(0.1)

    assert await poll is None


async def test_poll_above_the_limit_is_refused(tasks: FakeTasks, activity: FakeActivity) -> None:
    poll = asyncio.create_task(tasks.take(activity, "w", 60, 1))
    await asyncio.sleep(0)

    with pytest.raises(FakeServiceError, match="ActivityWorkerLimitExceeded"):
        await tasks.take(activity, "w", 60, 1)

    tasks.release_polls()
    await poll


@pytest.mark.parametrize(
    "call",
    [
        lambda tasks, token: tasks.heartbeat(token),
        lambda tasks, token: tasks.succeed(token, "1"),
        lambda tasks, token: tasks.fail(token, "E", "c"),
    ],
)
async def test_call_with_a_used_token_is_refused_and_counted(
    tasks: FakeTasks, activity: FakeActivity, call: Callable[[FakeTasks, str], None]
) -> None:
    task = await started(tasks, activity)
    tasks.succeed(task.token, "1")

    with pytest.raises(FakeServiceError, match="TaskTimedOut: Task Timed Out: 'Provided task does not exist anymore'"):
        call(tasks, task.token)

    assert (task.state, task.conclusions, task.refused) == ("succeeded", 1, 1)


async def test_malformed_and_unknown_tokens_have_different_errors(tasks: FakeTasks, activity: FakeActivity) -> None:
    task = await started(tasks, activity)

    with pytest.raises(FakeServiceError, match="InvalidToken"):
        tasks.heartbeat("nonsense")
    with pytest.raises(FakeServiceError, match="TaskDoesNotExist"):
        tasks.heartbeat(task.token[:-8] + "ffffffff")


async def test_output_that_is_not_json_is_refused_and_the_task_continues(
    tasks: FakeTasks, activity: FakeActivity
) -> None:
    task = await started(tasks, activity)

    with pytest.raises(FakeServiceError, match="InvalidOutput"):
        tasks.succeed(task.token, "{not json")

    assert task.state == "started"


async def test_heartbeat_extends_the_task_by_one_interval(
    tasks: FakeTasks, activity: FakeActivity, clock: VirtualClock
) -> None:
    task = await started(tasks, activity, heartbeat_seconds=10)
    for _ in range(5):
        clock.advance(9)
        tasks.heartbeat(task.token)

    clock.advance(9.9)
    assert task.state == "started"
    clock.advance(0.1)

    assert (task.state, task.error, task.heartbeats) == ("timed_out", "States.HeartbeatTimeout", 5)


async def test_heartbeats_do_not_extend_the_timeout(
    tasks: FakeTasks, activity: FakeActivity, clock: VirtualClock
) -> None:
    task = await started(tasks, activity, heartbeat_seconds=10, timeout_seconds=25)
    for _ in range(3):
        clock.advance(8)
        tasks.heartbeat(task.token)

    clock.advance(1)

    assert (task.state, task.error) == ("timed_out", "States.Timeout")


async def test_waiting_task_does_not_time_out(tasks: FakeTasks, activity: FakeActivity, clock: VirtualClock) -> None:
    task = tasks.schedule(activity, "{}", heartbeat_seconds=1, timeout_seconds=1)
    clock.advance(3600)

    assert task.state == "scheduled"
    assert await tasks.take(activity, "w", 60, NO_LIMIT) is task
