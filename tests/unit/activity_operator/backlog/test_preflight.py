"""The preflight asks for each activity once, again after an hour without polls, and within the service's quota."""

import asyncio
from itertools import pairwise

import pytest

from activity_operator.backlog.preflight import ActivityPreflight
from activity_operator.backlog.protocol import Key, PollTarget, SourceProblemError
from tests.unit.activity_operator.virtual_time import elapsed, wall

MISSING = SourceProblemError("ActivityNotFound", "create it")
DENIED = SourceProblemError("AccessDenied", "allow states:DescribeActivity")
DOWN = SourceProblemError("BackendUnreachable", "no answer")
BUSY = SourceProblemError("Throttled", "slower", throttled=True)


def target(name: str, account: str = "123456789012", **more: str) -> PollTarget:
    return PollTarget(f"arn:aws:states:us-east-1:{account}:activity:{name}", **more)


class MemoryPreflight:
    """A preflight over a service in memory; `problems` are its answers by name, `everything` is one for all."""

    def __init__(self) -> None:
        self.problems: dict[str, SourceProblemError] = {}
        self.everything: Exception | None = None
        self.asked: list[tuple[float, str]] = []
        self.polled: dict[str, float] = {}
        self.changed: list[str] = []
        self.preflight = ActivityPreflight(
            self,
            polled_at=lambda key: self.polled.get(key[1], 0.0),
            on_change=lambda key: self.changed.append(key[1]),
            now=wall,
            jitter=lambda: 1.0,
        )

    async def describe(self, target: PollTarget) -> None:
        name = target.arn.rsplit(":", 1)[-1]
        self.asked.append((round(elapsed(), 1), name))
        await asyncio.sleep(0.05)
        if self.everything is not None:
            raise self.everything
        if name in self.problems:
            raise self.problems[name]

    def order(self, *names: str) -> None:
        for name in names:
            self.preflight.order(_key(name), target(name))

    def reason(self, name: str) -> str:
        problem = self.preflight.problem(_key(name))
        return "" if problem is None else problem.reason

    def times(self, name: str) -> list[float]:
        return [at for at, one in self.asked if one == name]


def _key(name: str) -> Key:
    return "team", name


@pytest.fixture
def checked() -> MemoryPreflight:
    return MemoryPreflight()


async def test_new_pool_is_asked_for_at_once_and_again_after_an_hour(checked: MemoryPreflight) -> None:
    checked.order("a")
    await asyncio.sleep(3 * 3600.0)

    first, *rest = checked.times("a")
    assert first < 1.0
    assert [round(later - sooner) for sooner, later in pairwise((first, *rest))] == [3600, 3600]
    assert (checked.reason("a"), checked.changed) == ("", [])
    await checked.preflight.stop()


@pytest.mark.parametrize("problem", [MISSING, DENIED], ids=lambda problem: problem.reason)
async def test_problem_is_notified_at_once_and_ends_with_its_cause(
    checked: MemoryPreflight, problem: SourceProblemError
) -> None:
    checked.problems["a"] = problem
    checked.order("a", "b")
    await asyncio.sleep(5.0)
    assert (checked.reason("a"), checked.reason("b"), checked.changed) == (problem.reason, "", ["a"])

    await asyncio.sleep(3500.0)
    assert checked.changed == ["a"], "a problem that stays is notified once"
    assert len(checked.times("b")) == 1
    gaps = [round(later - sooner) for sooner, later in pairwise(checked.times("a"))]
    assert gaps[:6] == [15, 30, 60, 120, 240, 300]

    del checked.problems["a"]
    await asyncio.sleep(301.0)
    assert (checked.reason("a"), checked.changed) == ("", ["a", "a"])
    await checked.preflight.stop()


async def test_deleted_activity_is_found_within_an_hour(checked: MemoryPreflight) -> None:
    checked.order("a")
    await asyncio.sleep(60.0)
    checked.problems["a"] = MISSING
    await asyncio.sleep(3600.0)

    assert checked.reason("a") == "ActivityNotFound"
    await checked.preflight.stop()


async def test_activity_whose_polls_are_answered_is_not_asked_for(checked: MemoryPreflight) -> None:
    checked.polled["a"] = wall()
    checked.order("a")
    for _ in range(120):
        await asyncio.sleep(60.0)
        checked.polled["a"] = wall()
    assert checked.asked == []

    await asyncio.sleep(3590.0)
    assert checked.asked == []
    await asyncio.sleep(20.0)
    assert len(checked.asked) == 1
    await checked.preflight.stop()


async def test_answered_poll_ends_a_problem(checked: MemoryPreflight) -> None:
    checked.problems["a"] = DENIED
    checked.order("a")
    await asyncio.sleep(5.0)
    checked.polled["a"] = wall()
    await asyncio.sleep(20.0)

    assert checked.reason("a") == ""
    await checked.preflight.stop()


async def test_2200_pools_stay_within_the_services_quota(checked: MemoryPreflight) -> None:
    """The service allows 200 calls and one more each second; others need a part of them.

    The first pools are due again an hour later, when the last ones have not been asked for yet.
    """
    checked.order(*(f"p{number}" for number in range(2200)))
    await asyncio.sleep(4500.0)

    assert {name for _, name in checked.asked} >= {f"p{number}" for number in range(2200)}
    times = [at for at, _ in checked.asked]
    for first, last in zip(times, times[100:], strict=False):
        assert last - first >= 150.0
    assert len([at for at in times if at < 10.0]) <= 26
    await checked.preflight.stop()


async def test_new_pool_is_asked_for_before_those_that_wait(checked: MemoryPreflight) -> None:
    checked.order(*(f"p{number}" for number in range(1000)))
    await asyncio.sleep(300.0)
    checked.problems["new"] = MISSING
    checked.order("new")
    await asyncio.sleep(5.0)

    assert checked.reason("new") == "ActivityNotFound"
    await checked.preflight.stop()


async def test_accounts_do_not_share_a_budget(checked: MemoryPreflight) -> None:
    checked.order(*(f"p{number}" for number in range(200)))
    checked.preflight.order(_key("other"), target("other", "210987654321"))
    await asyncio.sleep(1.0)

    assert len(checked.times("other")) == 1
    await checked.preflight.stop()


async def test_pools_that_join_again_and_again_get_no_more_calls(checked: MemoryPreflight) -> None:
    for number in range(600):
        checked.order(f"p{number % 3}")
        checked.preflight.order(_key(f"p{number % 3}"), target(f"p{number % 3}", endpoint_url=""))
        await asyncio.sleep(0.5)
        checked.preflight.order(_key(f"p{number % 3}"), None)

    assert len(checked.asked) <= 20 + 300 * 0.5 + 1
    await checked.preflight.stop()


async def test_throttling_slows_down_and_is_no_problem_of_a_pool(checked: MemoryPreflight) -> None:
    checked.everything = BUSY
    checked.order("a", "b")
    await asyncio.sleep(1800.0)

    assert (checked.reason("a"), checked.changed) == ("", [])
    assert len(checked.asked) < 30
    checked.everything = None
    await asyncio.sleep(200.0)
    assert {name for _, name in checked.asked[-2:]} == {"a", "b"}
    await checked.preflight.stop()


async def test_service_without_an_answer_is_shown_after_three_calls(checked: MemoryPreflight) -> None:
    checked.problems["a"] = DOWN
    checked.order("a")
    await asyncio.sleep(30.0)
    assert (len(checked.asked), checked.reason("a")) == (2, "")

    await asyncio.sleep(30.0)
    assert (len(checked.asked), checked.reason("a")) == (3, "BackendUnreachable")
    await checked.preflight.stop()


async def test_corrected_activity_is_asked_for_at_once(checked: MemoryPreflight) -> None:
    checked.problems["a"] = MISSING
    checked.order("a")
    await asyncio.sleep(600.0)
    checked.preflight.order(_key("a"), target("right"))
    await asyncio.sleep(1.0)

    assert checked.asked[-1][1] == "right"
    assert checked.reason("a") == ""
    await checked.preflight.stop()


async def test_pool_that_leaves_is_not_asked_for(checked: MemoryPreflight) -> None:
    checked.problems["a"] = MISSING
    checked.order("a", "b")
    await asyncio.sleep(5.0)
    checked.preflight.order(_key("a"), None)
    assert checked.reason("a") == ""
    checked.preflight.pause()
    asked = len(checked.asked)
    await asyncio.sleep(7200.0)

    assert len(checked.asked) == asked


async def test_unexpected_error_ends_no_round(checked: MemoryPreflight) -> None:
    checked.everything = ZeroDivisionError()
    checked.order("a")
    await asyncio.sleep(5.0)
    checked.everything = None
    await asyncio.sleep(60.0)

    assert len(checked.asked) >= 2
    assert checked.reason("a") == ""
    await checked.preflight.stop()
