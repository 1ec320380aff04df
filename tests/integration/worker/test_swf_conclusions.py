"""Another process keeps an activity task of Amazon SWF alive and concludes it, against the fake in virtual time."""

from collections.abc import AsyncIterator

import pytest

from activity_worker import Conclusions
from activity_worker.errors import DeniedError, InvalidTokenError, LeaseLostError
from activity_worker.testing import FakeActivityTask, FakeTimeouts, SwfFake, VirtualClock


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def clock() -> VirtualClock:
    """The service's clock."""
    return VirtualClock()


@pytest.fixture
async def fake(clock: VirtualClock) -> AsyncIterator[SwfFake]:
    async with SwfFake(clock=clock, domains=["shop"]) as fake:
        yield fake


async def handed_away(fake: SwfFake, **seconds: float) -> FakeActivityTask:
    """Return a task that a worker has taken, and whose token it has handed away."""
    (task,) = fake.schedule("shop", "approvals", timeouts=FakeTimeouts(**seconds))
    answer = fake.answer("PollForActivityTask", {"domain": "shop", "taskList": {"name": "approvals"}})
    assert not isinstance(answer, dict)
    assert (await answer)["taskToken"] == task.token
    return task


async def test_heartbeats_keep_a_task_until_it_is_concluded(fake: SwfFake, clock: VirtualClock) -> None:
    task = await handed_away(fake, heartbeat_seconds=30)
    async with Conclusions.of_swf(region="us-east-1", endpoint_url=fake.url) as tasks:
        for share in (25, 50, 75):
            clock.advance(20)
            assert not await tasks.heartbeat(task.token, f"{share} %")
        await tasks.succeed(task.token, "approved")

    assert (task.heartbeats, task.details) == (3, "75 %")
    assert (task.result, task.closing_events()) == ('"approved"', ["ActivityTaskCompleted"])


@pytest.mark.parametrize(
    ("seconds", "kind"),
    [
        ({"heartbeat_seconds": 30.0}, "HEARTBEAT"),
        ({"start_to_close_seconds": 30.0}, "START_TO_CLOSE"),
        ({"schedule_to_close_seconds": 30.0}, "SCHEDULE_TO_CLOSE"),
    ],
)
async def test_conclusion_after_a_time_out_says_that_the_task_is_over(
    fake: SwfFake, clock: VirtualClock, seconds: dict[str, float], kind: str
) -> None:
    task = await handed_away(fake, **seconds)
    clock.advance(31)
    async with Conclusions.of_swf(region="us-east-1", endpoint_url=fake.url) as tasks:
        for call in (
            tasks.heartbeat(task.token),
            tasks.succeed(task.token, 1),
            tasks.fail(task.token, "Late"),
            tasks.confirm_cancellation(task.token),
        ):
            with pytest.raises(LeaseLostError, match="UnknownResourceFault"):
                await call

    assert (task.timeout_type, task.closing_events()) == (kind, ["ActivityTaskTimedOut"])


async def test_cancellation_that_was_not_requested_is_refused(fake: SwfFake) -> None:
    task = await handed_away(fake)
    async with Conclusions.of_swf(region="us-east-1", endpoint_url=fake.url) as tasks:
        with pytest.raises(DeniedError, match="OperationNotPermittedFault"):
            await tasks.confirm_cancellation(task.token)

    assert task.closing_events() == []


async def test_token_of_another_service_is_invalid(fake: SwfFake) -> None:
    async with Conclusions.of_swf(region="us-east-1", endpoint_url=fake.url) as tasks:
        with pytest.raises(InvalidTokenError):
            await tasks.succeed("nonsense", 1)
