"""CloudWatch counts: one round a minute per region and role; changes are notified, failures retried with back-off."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest

from activity_operator.backlog.metric_rounds import MetricPoller
from activity_operator.backlog.protocol import Key, PollTarget, SourceProblemError, TimeRange
from activity_operator.core.observation import MetricPeriod
from tests.unit.activity_operator.virtual_time import elapsed, wall

DENIED = SourceProblemError("AccessDenied", "allow it")
THROTTLED = SourceProblemError("Throttled", "slower", throttled=True)


def arn(name: str, region: str = "us-east-1") -> str:
    return f"arn:aws:states:{region}:123456789012:activity:{name}"


def target(name: str, **more: str) -> PollTarget:
    return PollTarget(arn(name), **more)


class FakeService:
    """Returns the flows or errors that were set for each activity, and records its calls."""

    def __init__(self) -> None:
        self.minutes: dict[str, tuple[MetricPeriod, ...] | SourceProblemError] = {}
        self.hours: dict[str, tuple[MetricPeriod, ...] | SourceProblemError] = {}
        self.fails: SourceProblemError | Exception | None = None
        self.reads: list[tuple[float, PollTarget, tuple[str, ...], TimeRange]] = []
        self.takes = 0.0

    async def read(
        self, target: PollTarget, arns: Sequence[str], span: TimeRange
    ) -> Mapping[str, tuple[MetricPeriod, ...] | SourceProblemError]:
        self.reads.append((elapsed(), target, tuple(arns), span))
        await asyncio.sleep(self.takes)
        if self.fails is not None:
            raise self.fails
        flows = self.minutes if span.period == 60 else self.hours
        return {each: flows.get(each, ()) for each in arns}

    def rounds(self) -> list[tuple[float, int]]:
        """Return the times at which minutes were read, each with the number of activities."""
        return [(at, len(arns)) for at, _, arns, span in self.reads if span.period == 60]


class RecordedCounts:
    """The counts under test, and the keys that they notified."""

    def __init__(self) -> None:
        self.service = FakeService()
        self.changed: list[Key] = []
        self.counts = MetricPoller(self.service, on_change=self.changed.append, now=wall, jitter=lambda: 1.0)

    def flows(self, name: str) -> tuple[MetricPeriod, ...] | None:
        counts, _ = self.counts.latest(("team", name))
        return None if counts is None else counts.periods

    def error(self, name: str) -> str:
        _, error = self.counts.latest(("team", name))
        return "" if error is None else error.reason

    def order(self, *names: str) -> None:
        for name in names:
            self.counts.order(("team", name), target(name))


@pytest.fixture
def recorded() -> RecordedCounts:
    return RecordedCounts()


async def test_pools_that_start_together_are_read_in_one_round_a_minute(recorded: RecordedCounts) -> None:
    recorded.order("a", "b", "c")
    await asyncio.sleep(200)

    assert recorded.service.rounds() == [(2.0, 3), (64.0, 3), (126.0, 3), (188.0, 3)]
    await recorded.counts.stop()


async def test_each_region_role_and_endpoint_is_read_in_its_own_round(recorded: RecordedCounts) -> None:
    recorded.counts.order(("team", "a"), target("a"))
    recorded.counts.order(("team", "b"), target("b", role_arn="arn:role", external_id="cluster/team"))
    recorded.counts.order(("team", "c"), PollTarget(arn("c", "eu-west-1")))
    recorded.counts.order(("team", "d"), target("d", endpoint_url="http://cw"))
    await asyncio.sleep(3)

    targets = {(where.region, where.role_arn, where.endpoint_url) for _, where, _, _ in recorded.service.reads}
    assert targets == {
        ("us-east-1", "", ""),
        ("us-east-1", "arn:role", ""),
        ("eu-west-1", "", ""),
        ("us-east-1", "", "http://cw"),
    }
    assert all(len(arns) == 1 for _, _, arns, _ in recorded.service.reads)
    await recorded.counts.stop()


async def test_pools_of_one_activity_share_one_query(recorded: RecordedCounts) -> None:
    recorded.counts.order(("team", "a"), target("a"))
    recorded.counts.order(("other", "a"), target("a"))
    await asyncio.sleep(3)

    assert recorded.service.rounds() == [(2.0, 1)]
    assert recorded.counts.latest(("other", "a"))[0] is not None
    await recorded.counts.stop()


async def test_pool_is_notified_only_of_changes(recorded: RecordedCounts) -> None:
    recorded.order("a", "b")
    await asyncio.sleep(3)
    assert recorded.changed == [("team", "a"), ("team", "b")]

    recorded.changed.clear()
    await asyncio.sleep(600)
    assert recorded.changed == []

    recorded.service.minutes[arn("b")] = (MetricPeriod(999_960, 60, 3, 0),)
    await asyncio.sleep(62)
    assert recorded.changed == [("team", "b")]
    assert recorded.flows("b") == (MetricPeriod(999_960, 60, 3, 0),)
    await recorded.counts.stop()


async def test_observation_time_is_the_time_of_the_request(recorded: RecordedCounts) -> None:
    recorded.service.takes = 7.0
    recorded.order("a")
    await asyncio.sleep(20)

    counts, _ = recorded.counts.latest(("team", "a"))
    assert counts is not None
    assert counts.observed_at == 1_000_000.0 + 2.0
    await recorded.counts.stop()


async def test_past_hours_are_read_at_the_start_and_once_an_hour(recorded: RecordedCounts) -> None:
    recorded.service.hours[arn("a")] = (MetricPeriod(982_800, 3600, 5, 1),)
    recorded.service.minutes[arn("a")] = (MetricPeriod(999_960, 60, 1, 0),)
    recorded.order("a")
    await asyncio.sleep(2 * 3600)

    hourly = [(at, span) for at, _, _, span in recorded.service.reads if span.period == 3600]
    assert len(hourly) == 3
    assert hourly[1][1].end == hourly[0][1].end + 3600
    assert recorded.flows("a") == (MetricPeriod(982_800, 3600, 5, 1), MetricPeriod(999_960, 60, 1, 0))
    await recorded.counts.stop()


async def test_new_pool_is_read_at_once_without_the_others(recorded: RecordedCounts) -> None:
    recorded.order("a", "b")
    await asyncio.sleep(10)
    recorded.order("c")
    await asyncio.sleep(3)

    assert recorded.service.rounds() == [(2.0, 2), (12.0, 1)]
    await asyncio.sleep(55)
    assert recorded.service.rounds()[2][1] == 3
    await recorded.counts.stop()


async def test_failure_is_notified_once_and_retried_with_backoff(recorded: RecordedCounts) -> None:
    recorded.order("a")
    await asyncio.sleep(3)
    recorded.changed.clear()
    recorded.service.reads.clear()
    recorded.service.fails = DENIED
    await asyncio.sleep(400)

    assert recorded.changed == [("team", "a")]
    assert (recorded.error("a"), recorded.flows("a")) == ("AccessDenied", ())
    gaps = [after - before for (before, _), (after, _) in pairwise(recorded.service.rounds())]
    assert gaps[:7] == [7.0, 12.0, 22.0, 42.0, 62.0, 62.0, 62.0]

    recorded.service.fails = None
    await asyncio.sleep(70)
    assert recorded.error("a") == ""
    assert recorded.changed == [("team", "a"), ("team", "a")]
    await recorded.counts.stop()


async def test_throttling_is_reported_only_when_it_lasts(recorded: RecordedCounts) -> None:
    recorded.service.fails = THROTTLED
    recorded.order("a")
    await asyncio.sleep(60)
    assert recorded.error("a") == ""

    await asyncio.sleep(600)
    assert recorded.error("a") == "Throttled"
    rounds = [at for at, _, _, _ in recorded.service.reads]
    assert rounds[-1] - rounds[-2] == 122.0
    await recorded.counts.stop()


async def test_failure_of_one_activity_does_not_affect_others(recorded: RecordedCounts) -> None:
    recorded.service.minutes[arn("a")] = DENIED
    recorded.order("a", "b")
    await asyncio.sleep(3)

    assert (recorded.error("a"), recorded.flows("a")) == ("AccessDenied", None)
    assert (recorded.error("b"), recorded.flows("b")) == ("", ())
    await recorded.counts.stop()


async def test_backlog_without_past_hours_is_unknown(recorded: RecordedCounts) -> None:
    recorded.service.hours[arn("a")] = SourceProblemError("BackendUnreachable", "no hours")
    recorded.order("a")
    await asyncio.sleep(3)

    assert (recorded.error("a"), recorded.flows("a")) == ("BackendUnreachable", None)
    await recorded.counts.stop()


async def test_pool_with_another_target_starts_without_counts(recorded: RecordedCounts) -> None:
    recorded.order("a")
    await asyncio.sleep(3)
    recorded.counts.order(("team", "a"), target("a", endpoint_url="http://cw"))

    assert recorded.flows("a") is None
    await asyncio.sleep(3)
    assert recorded.flows("a") == ()
    assert recorded.service.reads[-1][1].endpoint_url == "http://cw"
    await recorded.counts.stop()
