"""One round a minute for all pools of a place; told only what changed; what fails is tried again, ever later."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest

from activity_operator.backlog.activity_counts import ActivityCounts
from activity_operator.backlog.protocol import Key, PollTarget, SourceProblemError, Span
from activity_operator.core.observation import Flow
from tests.unit.activity_operator.virtual_time import elapsed, wall

DENIED = SourceProblemError("AccessDenied", "allow it")
THROTTLED = SourceProblemError("Throttled", "slower", throttled=True)


def arn(name: str, region: str = "us-east-1") -> str:
    return f"arn:aws:states:{region}:123456789012:activity:{name}"


def target(name: str, **more: str) -> PollTarget:
    return PollTarget(arn(name), **more)


class FakeService:
    """Tells of each activity what it was set to; keeps when and about what it was asked."""

    def __init__(self) -> None:
        self.minutes: dict[str, tuple[Flow, ...] | SourceProblemError] = {}
        self.hours: dict[str, tuple[Flow, ...] | SourceProblemError] = {}
        self.fails: SourceProblemError | Exception | None = None
        self.reads: list[tuple[float, PollTarget, tuple[str, ...], Span]] = []
        self.takes = 0.0

    async def read(
        self, target: PollTarget, arns: Sequence[str], span: Span
    ) -> Mapping[str, tuple[Flow, ...] | SourceProblemError]:
        self.reads.append((elapsed(), target, tuple(arns), span))
        await asyncio.sleep(self.takes)
        if self.fails is not None:
            raise self.fails
        told = self.minutes if span.period == 60 else self.hours
        return {each: told.get(each, ()) for each in arns}

    def rounds(self) -> list[tuple[float, int]]:
        """Return when minutes were read, and of how many activities."""
        return [(at, len(arns)) for at, _, arns, span in self.reads if span.period == 60]


class Told:
    """The counts under test, and whom they told."""

    def __init__(self) -> None:
        self.service = FakeService()
        self.changed: list[Key] = []
        self.counts = ActivityCounts(self.service, on_change=self.changed.append, now=wall, dice=lambda: 1.0)

    def flows(self, name: str) -> tuple[Flow, ...] | None:
        counts, _ = self.counts.said(("team", name))
        return None if counts is None else counts.flows

    def error(self, name: str) -> str:
        _, error = self.counts.said(("team", name))
        return "" if error is None else error.reason

    def order(self, *names: str) -> None:
        for name in names:
            self.counts.order(("team", name), target(name))


@pytest.fixture
def told() -> Told:
    return Told()


async def test_all_pools_of_a_start_are_read_in_one_round_and_then_once_a_minute(told: Told) -> None:
    told.order("a", "b", "c")
    await asyncio.sleep(200)

    assert told.service.rounds() == [(2.0, 3), (64.0, 3), (126.0, 3), (188.0, 3)]
    await told.counts.stop()


async def test_places_are_read_apart_each_with_its_own_identity(told: Told) -> None:
    told.counts.order(("team", "a"), target("a"))
    told.counts.order(("team", "b"), target("b", role_arn="arn:role", external_id="cluster/team"))
    told.counts.order(("team", "c"), PollTarget(arn("c", "eu-west-1")))
    told.counts.order(("team", "d"), target("d", endpoint_url="http://cw"))
    await asyncio.sleep(3)

    asked = {(where.region, where.role_arn, where.endpoint_url) for _, where, _, _ in told.service.reads}
    assert asked == {
        ("us-east-1", "", ""),
        ("us-east-1", "arn:role", ""),
        ("eu-west-1", "", ""),
        ("us-east-1", "", "http://cw"),
    }
    assert all(len(arns) == 1 for _, _, arns, _ in told.service.reads)
    await told.counts.stop()


async def test_two_pools_on_one_activity_are_one_question(told: Told) -> None:
    told.counts.order(("team", "a"), target("a"))
    told.counts.order(("other", "a"), target("a"))
    await asyncio.sleep(3)

    assert told.service.rounds() == [(2.0, 1)]
    assert told.counts.said(("other", "a"))[0] is not None
    await told.counts.stop()


async def test_a_pool_is_told_of_what_changed_and_left_alone_otherwise(told: Told) -> None:
    told.order("a", "b")
    await asyncio.sleep(3)
    assert told.changed == [("team", "a"), ("team", "b")]

    told.changed.clear()
    await asyncio.sleep(600)
    assert told.changed == []

    told.service.minutes[arn("b")] = (Flow(999_960, 60, 3, 0),)
    await asyncio.sleep(62)
    assert told.changed == [("team", "b")]
    assert told.flows("b") == (Flow(999_960, 60, 3, 0),)
    await told.counts.stop()


async def test_counts_say_when_they_were_asked_for_not_when_the_answer_came(told: Told) -> None:
    told.service.takes = 7.0
    told.order("a")
    await asyncio.sleep(20)

    counts, _ = told.counts.said(("team", "a"))
    assert counts is not None
    assert counts.observed_at == 1_000_000.0 + 2.0
    await told.counts.stop()


async def test_the_hours_before_are_read_at_first_and_when_an_hour_has_passed(told: Told) -> None:
    told.service.hours[arn("a")] = (Flow(982_800, 3600, 5, 1),)
    told.service.minutes[arn("a")] = (Flow(999_960, 60, 1, 0),)
    told.order("a")
    await asyncio.sleep(2 * 3600)

    hourly = [(at, span) for at, _, _, span in told.service.reads if span.period == 3600]
    assert len(hourly) == 3
    assert hourly[1][1].end == hourly[0][1].end + 3600
    assert told.flows("a") == (Flow(982_800, 3600, 5, 1), Flow(999_960, 60, 1, 0))
    await told.counts.stop()


async def test_a_new_pool_is_read_at_once_and_the_others_are_not_asked_again(told: Told) -> None:
    told.order("a", "b")
    await asyncio.sleep(10)
    told.order("c")
    await asyncio.sleep(3)

    assert told.service.rounds() == [(2.0, 2), (12.0, 1)]
    await asyncio.sleep(55)
    assert told.service.rounds()[2][1] == 3
    await told.counts.stop()


async def test_ordering_again_changes_nothing(told: Told) -> None:
    told.order("a")
    await asyncio.sleep(3)
    for _ in range(20):
        told.order("a")
        await asyncio.sleep(1)

    assert len(told.service.rounds()) == 1
    assert told.flows("a") == ()
    await told.counts.stop()


async def test_a_failure_is_told_once_kept_with_the_last_counts_and_tried_again_ever_later(told: Told) -> None:
    told.order("a")
    await asyncio.sleep(3)
    told.changed.clear()
    told.service.reads.clear()
    told.service.fails = DENIED
    await asyncio.sleep(400)

    assert told.changed == [("team", "a")]
    assert (told.error("a"), told.flows("a")) == ("AccessDenied", ())
    gaps = [after - before for (before, _), (after, _) in pairwise(told.service.rounds())]
    assert gaps[:7] == [7.0, 12.0, 22.0, 42.0, 62.0, 62.0, 62.0]

    told.service.fails = None
    await asyncio.sleep(70)
    assert told.error("a") == ""
    assert told.changed == [("team", "a"), ("team", "a")]
    await told.counts.stop()


async def test_throttling_is_told_only_when_it_lasts_and_waits_longer(told: Told) -> None:
    told.service.fails = THROTTLED
    told.order("a")
    await asyncio.sleep(60)
    assert told.error("a") == ""

    await asyncio.sleep(600)
    assert told.error("a") == "Throttled"
    rounds = [at for at, _, _, _ in told.service.reads]
    assert rounds[-1] - rounds[-2] == 124.0
    await told.counts.stop()


async def test_one_activity_without_an_answer_spares_the_others(told: Told) -> None:
    told.service.minutes[arn("a")] = DENIED
    told.order("a", "b")
    await asyncio.sleep(3)

    assert (told.error("a"), told.flows("a")) == ("AccessDenied", None)
    assert (told.error("b"), told.flows("b")) == ("", ())
    await told.counts.stop()


async def test_without_its_past_a_pools_backlog_is_unknown(told: Told) -> None:
    told.service.hours[arn("a")] = SourceProblemError("BackendUnreachable", "no hours")
    told.order("a")
    await asyncio.sleep(3)

    assert (told.error("a"), told.flows("a")) == ("BackendUnreachable", None)
    await told.counts.stop()


async def test_what_nobody_expected_is_a_failure_like_others(told: Told) -> None:
    told.service.fails = ZeroDivisionError()
    told.order("a")
    await asyncio.sleep(3)

    assert told.error("a") == "BackendUnreachable"
    told.service.fails = None
    await asyncio.sleep(10)
    assert told.error("a") == ""
    await told.counts.stop()


async def test_a_pool_that_is_read_no_more_is_forgotten_and_the_last_one_ends_the_rounds(told: Told) -> None:
    told.order("a", "b")
    await asyncio.sleep(3)
    told.counts.order(("team", "a"), None)
    await asyncio.sleep(62)
    assert told.flows("a") is None
    assert told.service.rounds()[-1][1] == 1

    told.counts.order(("team", "b"), None)
    asked = len(told.service.reads)
    await asyncio.sleep(300)
    assert len(told.service.reads) == asked


async def test_a_pool_that_leaves_during_a_round_is_not_told(told: Told) -> None:
    told.service.takes = 5.0
    told.order("a", "b")
    await asyncio.sleep(3)
    told.counts.order(("team", "a"), None)
    await asyncio.sleep(20)

    assert told.changed == [("team", "b")]
    await told.counts.stop()


async def test_a_pool_that_moves_begins_anew(told: Told) -> None:
    told.order("a")
    await asyncio.sleep(3)
    told.counts.order(("team", "a"), target("a", endpoint_url="http://cw"))

    assert told.flows("a") is None
    await asyncio.sleep(3)
    assert told.flows("a") == ()
    assert told.service.reads[-1][1].endpoint_url == "http://cw"
    await told.counts.stop()


async def test_pausing_reads_nothing_more_and_stopping_waits_for_no_answer(told: Told) -> None:
    told.service.takes = 20.0
    told.order("a")
    await asyncio.sleep(3)
    began = elapsed()
    await told.counts.stop()

    assert elapsed() == began
    assert told.flows("a") is None
    told.order("a")
    await asyncio.sleep(60)
    assert told.flows("a") == ()
    told.counts.pause()
    asked = len(told.service.reads)
    await asyncio.sleep(300)
    assert len(told.service.reads) == asked
