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


class Scene:
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
def scene() -> Scene:
    return Scene()


async def test_new_pool_is_asked_for_at_once_and_again_after_an_hour(scene: Scene) -> None:
    scene.order("a")
    await asyncio.sleep(3 * 3600.0)

    first, *rest = scene.times("a")
    assert first < 1.0
    assert [round(later - sooner) for sooner, later in pairwise((first, *rest))] == [3600, 3600]
    assert (scene.reason("a"), scene.changed) == ("", [])
    await scene.preflight.stop()


@pytest.mark.parametrize("problem", [MISSING, DENIED], ids=lambda problem: problem.reason)
async def test_problem_is_notified_at_once_and_ends_with_its_cause(scene: Scene, problem: SourceProblemError) -> None:
    scene.problems["a"] = problem
    scene.order("a", "b")
    await asyncio.sleep(5.0)
    assert (scene.reason("a"), scene.reason("b"), scene.changed) == (problem.reason, "", ["a"])

    await asyncio.sleep(3500.0)
    assert scene.changed == ["a"], "a problem that stays is notified once"
    assert len(scene.times("b")) == 1
    gaps = [round(later - sooner) for sooner, later in pairwise(scene.times("a"))]
    assert gaps[:6] == [15, 30, 60, 120, 240, 300]

    del scene.problems["a"]
    await asyncio.sleep(301.0)
    assert (scene.reason("a"), scene.changed) == ("", ["a", "a"])
    await scene.preflight.stop()


async def test_deleted_activity_is_found_within_an_hour(scene: Scene) -> None:
    scene.order("a")
    await asyncio.sleep(60.0)
    scene.problems["a"] = MISSING
    await asyncio.sleep(3600.0)

    assert scene.reason("a") == "ActivityNotFound"
    await scene.preflight.stop()


async def test_activity_whose_polls_are_answered_is_not_asked_for(scene: Scene) -> None:
    scene.polled["a"] = wall()
    scene.order("a")
    for _ in range(120):
        await asyncio.sleep(60.0)
        scene.polled["a"] = wall()
    assert scene.asked == []

    await asyncio.sleep(3590.0)
    assert scene.asked == []
    await asyncio.sleep(20.0)
    assert len(scene.asked) == 1
    await scene.preflight.stop()


async def test_answered_poll_ends_a_problem(scene: Scene) -> None:
    scene.problems["a"] = DENIED
    scene.order("a")
    await asyncio.sleep(5.0)
    scene.polled["a"] = wall()
    await asyncio.sleep(20.0)

    assert scene.reason("a") == ""
    await scene.preflight.stop()


async def test_5000_pools_stay_within_the_services_quota(scene: Scene) -> None:
    """The service allows 200 calls and one more each second; others need a part of them."""
    scene.order(*(f"p{number}" for number in range(5000)))
    await asyncio.sleep(3 * 3600.0)

    assert {name for _, name in scene.asked} >= {f"p{number}" for number in range(5000)}
    times = [at for at, _ in scene.asked]
    for first, last in zip(times, times[100:], strict=False):
        assert last - first >= 150.0
    assert len([at for at in times if at < 10.0]) <= 26
    await scene.preflight.stop()


async def test_new_pool_is_asked_for_before_those_that_wait(scene: Scene) -> None:
    scene.order(*(f"p{number}" for number in range(1000)))
    await asyncio.sleep(300.0)
    scene.problems["new"] = MISSING
    scene.order("new")
    await asyncio.sleep(5.0)

    assert scene.reason("new") == "ActivityNotFound"
    await scene.preflight.stop()


async def test_accounts_do_not_share_a_budget(scene: Scene) -> None:
    scene.order(*(f"p{number}" for number in range(200)))
    scene.preflight.order(_key("other"), target("other", "210987654321"))
    await asyncio.sleep(1.0)

    assert len(scene.times("other")) == 1
    await scene.preflight.stop()


async def test_pools_that_join_again_and_again_get_no_more_calls(scene: Scene) -> None:
    for number in range(600):
        scene.order(f"p{number % 3}")
        scene.preflight.order(_key(f"p{number % 3}"), target(f"p{number % 3}", endpoint_url=""))
        await asyncio.sleep(0.5)
        scene.preflight.order(_key(f"p{number % 3}"), None)

    assert len(scene.asked) <= 20 + 300 * 0.5 + 1
    await scene.preflight.stop()


async def test_throttling_slows_down_and_is_no_problem_of_a_pool(scene: Scene) -> None:
    scene.everything = BUSY
    scene.order("a", "b")
    await asyncio.sleep(1800.0)

    assert (scene.reason("a"), scene.changed) == ("", [])
    assert len(scene.asked) < 30
    scene.everything = None
    await asyncio.sleep(200.0)
    assert {name for _, name in scene.asked[-2:]} == {"a", "b"}
    await scene.preflight.stop()


async def test_service_without_an_answer_is_shown_after_three_calls(scene: Scene) -> None:
    scene.problems["a"] = DOWN
    scene.order("a")
    await asyncio.sleep(30.0)
    assert (len(scene.asked), scene.reason("a")) == (2, "")

    await asyncio.sleep(30.0)
    assert (len(scene.asked), scene.reason("a")) == (3, "BackendUnreachable")
    await scene.preflight.stop()


async def test_corrected_activity_is_asked_for_at_once(scene: Scene) -> None:
    scene.problems["a"] = MISSING
    scene.order("a")
    await asyncio.sleep(600.0)
    scene.preflight.order(_key("a"), target("right"))
    await asyncio.sleep(1.0)

    assert scene.asked[-1][1] == "right"
    assert scene.reason("a") == ""
    await scene.preflight.stop()


async def test_pool_that_leaves_is_not_asked_for(scene: Scene) -> None:
    scene.problems["a"] = MISSING
    scene.order("a", "b")
    await asyncio.sleep(5.0)
    scene.preflight.order(_key("a"), None)
    assert scene.reason("a") == ""
    scene.preflight.pause()
    asked = len(scene.asked)
    await asyncio.sleep(7200.0)

    assert len(scene.asked) == asked


async def test_unexpected_error_ends_no_round(scene: Scene) -> None:
    scene.everything = ZeroDivisionError()
    scene.order("a")
    await asyncio.sleep(5.0)
    scene.everything = None
    await asyncio.sleep(60.0)

    assert len(scene.asked) >= 2
    assert scene.reason("a") == ""
    await scene.preflight.stop()
