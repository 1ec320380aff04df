"""Task lists are counted within the quota, the neediest first; errors and throttling keep the last count and show."""

import asyncio
from itertools import pairwise

from activity_operator.backlog.call_budget import CallBudget
from activity_operator.backlog.protocol import Key, PollTarget, SourceProblemError
from activity_operator.backlog.task_list_pace import FASTEST_SECONDS
from activity_operator.backlog.task_list_rounds import (
    BURST_COUNTS,
    CALL_SECONDS,
    COUNTS_PER_SECOND,
    RETRY_CAP_SECONDS,
    CountQuota,
    TaskListPoller,
)
from activity_operator.core.decision import CountPace
from activity_worker.wire.swf import PendingCount
from tests.unit.activity_operator.virtual_time import elapsed, wall

DENIED = SourceProblemError("AccessDenied", "allow swf:CountPendingActivityTasks")
DOWN = SourceProblemError("BackendUnreachable", "no answer")
BUSY = SourceProblemError("Throttled", "slower", throttled=True)
QUICK = CountQuota(counts_per_second=1000.0)


def target(name: str, region: str = "us-east-1", **more: str) -> PollTarget:
    return PollTarget("", region=region, domain="shop", task_list=name, **more)


def key_of(name: str) -> Key:
    return ("team", name)


class PollerHarness:
    """A poller over lists in memory. `counts` are by task list; `problems` are raised instead; `everything` by all.

    `bucket` is the service's own quota, None for no limit.
    """

    def __init__(self, quota: CountQuota | None = None) -> None:
        self.counts: dict[str, PendingCount] = {}
        self.problems: dict[str, SourceProblemError] = {}
        self.everything: SourceProblemError | None = None
        self.bucket: CallBudget | None = None
        self.takes = 0.02
        self.asked: list[tuple[float, str]] = []
        self.changed: list[str] = []
        self.poller = TaskListPoller(
            self, on_change=lambda key: self.changed.append(key[1]), now=wall, quota=quota, jitter=lambda: 1.0
        )

    async def count(self, target: PollTarget) -> PendingCount:
        name = target.task_list
        self.asked.append((elapsed(), name))
        await asyncio.sleep(self.takes)
        if self.bucket is not None:
            self.bucket.refill(elapsed())
            if self.bucket.calls < 1.0:
                raise BUSY
            self.bucket.calls -= 1.0
        if (problem := self.everything or self.problems.get(name)) is not None:
            raise problem
        return self.counts.get(name, PendingCount(0, False))

    def order(self, *names: str, pace: CountPace = CountPace.STEADY) -> None:
        for name in names:
            self.poller.order(key_of(name), target(name), pace)

    def put(self, name: str, tasks: int, *, truncated: bool = False) -> None:
        self.counts[name] = PendingCount(tasks, truncated)

    def tasks(self, name: str) -> int | None:
        count, _ = self.poller.latest(key_of(name))
        return None if count is None else count.tasks

    def reason(self, name: str) -> str:
        _, problem = self.poller.latest(key_of(name))
        return "" if problem is None else problem.reason

    def age(self, name: str) -> float:
        count, _ = self.poller.latest(key_of(name))
        return float("inf") if count is None else wall() - count.observed_at

    def times(self, *names: str) -> list[float]:
        return [at for at, name in self.asked if not names or name in names]


async def test_new_list_is_counted_at_once_and_then_at_the_fastest_interval() -> None:
    harness = PollerHarness()
    harness.put("pack", 3)
    harness.order("pack")
    await asyncio.sleep(0.1)
    assert harness.tasks("pack") == 3

    await asyncio.sleep(3.5)

    assert harness.times()[0] < 0.05
    assert all(0.3 < later - earlier < 0.45 for earlier, later in pairwise(harness.times()))


async def test_changed_count_is_told_once_and_an_unchanged_one_is_not() -> None:
    harness = PollerHarness()
    harness.order("pack")
    await asyncio.sleep(2)
    assert harness.changed == ["pack"]

    harness.put("pack", 5)
    await asyncio.sleep(2)

    assert harness.changed == ["pack", "pack"]


async def test_truncated_count_is_passed_on_as_such() -> None:
    harness = PollerHarness()
    harness.put("pack", 5000, truncated=True)
    harness.order("pack")
    await asyncio.sleep(0.2)

    count, _ = harness.poller.latest(key_of("pack"))

    assert count is not None
    assert (count.tasks, count.truncated, count.exact) == (5000, True, True)


async def test_200_lists_stay_within_the_quota_and_none_is_left_out() -> None:
    harness = PollerHarness()
    names = [f"list-{number}" for number in range(200)]
    harness.order(*names)
    await asyncio.sleep(120)

    assert len(harness.asked) <= BURST_COUNTS + 120 * COUNTS_PER_SECOND
    assert len(harness.asked) >= 115 * COUNTS_PER_SECOND
    assert max(harness.age(name) for name in names) < 200 / COUNTS_PER_SECOND + 2


async def test_count_is_not_stale_before_it_was_missed_three_times() -> None:
    harness = PollerHarness()
    harness.order(*(f"list-{number}" for number in range(200)))
    await asyncio.sleep(60)

    count, _ = harness.poller.latest(key_of("list-7"))

    assert count is not None
    assert count.stale_seconds == 3 * 200 / COUNTS_PER_SECOND


async def test_throttling_does_not_keep_old_counts_fresh() -> None:
    harness = PollerHarness()
    harness.order(*(f"list-{number}" for number in range(200)))
    await asyncio.sleep(60)
    harness.everything = BUSY
    await asyncio.sleep(120)

    count, _ = harness.poller.latest(key_of("list-7"))

    assert count is not None
    assert count.stale_seconds < 125
    assert harness.age("list-7") > 115


async def test_pool_that_grows_is_counted_more_often_than_pools_at_zero() -> None:
    harness = PollerHarness()
    harness.order(*(f"list-{number}" for number in range(40)))
    await asyncio.sleep(30)
    harness.order("list-1", pace=CountPace.FAST)
    harness.put("list-1", 9)
    await asyncio.sleep(30)
    harness.asked.clear()
    await asyncio.sleep(30)

    assert len(harness.times("list-1")) >= 6 * len(harness.times("list-2"))


async def test_pool_with_free_slots_leaves_the_quota_to_the_others() -> None:
    harness = PollerHarness()
    harness.order(*(f"list-{number}" for number in range(20)), pace=CountPace.SLOW)
    harness.order("pack")
    await asyncio.sleep(10)
    harness.asked.clear()
    await asyncio.sleep(10)

    assert len(harness.times("pack")) > 9 / (FASTEST_SECONDS + 0.05)


async def test_faster_pace_ends_a_long_rest() -> None:
    harness = PollerHarness()
    harness.order("pack", pace=CountPace.SLOW)
    await asyncio.sleep(5)
    harness.put("pack", 4)
    harness.order("pack", pace=CountPace.FAST)
    await asyncio.sleep(0.2)

    assert harness.tasks("pack") == 4


async def test_lists_of_other_regions_and_accounts_have_quotas_of_their_own() -> None:
    harness = PollerHarness()
    role = "arn:aws:iam::210987654321:role/counter"
    harness.poller.order(key_of("here"), target("here"))
    harness.poller.order(key_of("there"), target("there", region="eu-west-1"))
    harness.poller.order(key_of("other"), target("other", role_arn=role))
    await asyncio.sleep(10)

    assert all(len(harness.times(name)) > 22 for name in ("here", "there", "other"))


async def test_refused_list_shows_it_and_the_others_are_counted() -> None:
    harness = PollerHarness()
    harness.problems["locked"] = DENIED
    harness.order("locked", "open")
    await asyncio.sleep(2)

    assert (harness.reason("locked"), harness.reason("open")) == ("AccessDenied", "")
    assert len(harness.times("locked")) < len(harness.times("open"))

    del harness.problems["locked"]
    await asyncio.sleep(10)

    assert (harness.reason("locked"), harness.tasks("locked")) == ("", 0)


async def test_refused_list_is_asked_for_less_and_less() -> None:
    harness = PollerHarness()
    harness.problems["locked"] = DENIED
    harness.order("locked")
    await asyncio.sleep(600)

    gaps = [round(later - earlier, 3) for earlier, later in pairwise(harness.times())]
    assert gaps == sorted(gaps)
    assert 55 < gaps[-1] < 65


async def test_throttled_list_no_longer_says_that_it_is_refused() -> None:
    harness = PollerHarness()
    names = [f"list-{number}" for number in range(40)]
    harness.everything = DENIED
    harness.order(*names)
    await asyncio.sleep(600)
    assert {harness.reason(name) for name in names} == {"AccessDenied"}

    # The right is granted, and the place is throttled: nobody knows any more that the right is missing.
    harness.everything = BUSY
    await asyncio.sleep(180)
    assert {harness.reason(name) for name in names} == {"Throttled"}

    harness.everything = None
    await asyncio.sleep(60)
    assert {harness.reason(name) for name in names} == {""}


async def test_refused_list_is_asked_for_soon_in_a_crowded_quota() -> None:
    harness = PollerHarness()
    harness.bucket = CallBudget(5.0, 0.5)
    harness.problems["list-7"] = DENIED
    harness.order(*(f"list-{number}" for number in range(100)))
    await asyncio.sleep(1200)
    del harness.problems["list-7"]

    await asyncio.sleep(2 * RETRY_CAP_SECONDS)

    assert harness.tasks("list-7") == 0
    assert {harness.tasks(f"list-{number}") for number in range(100)} == {0}


async def test_first_list_that_is_allowed_again_makes_the_others_due() -> None:
    harness = PollerHarness()
    names = [f"list-{number}" for number in range(40)]
    harness.everything = DENIED
    for name in names:
        harness.order(name)
        await asyncio.sleep(RETRY_CAP_SECONDS / len(names))
    await asyncio.sleep(1800)
    harness.everything = None

    # The lists are due one after the other within a minute: the first one is asked for at once.
    await asyncio.sleep(2 * RETRY_CAP_SECONDS / len(names) + len(names) / COUNTS_PER_SECOND)

    assert {harness.reason(name) for name in names} == {""}


async def test_list_that_stays_refused_is_asked_for_seldom() -> None:
    harness = PollerHarness()
    names = [f"list-{number}" for number in range(40)]
    harness.everything = DENIED
    harness.order(*names)
    await asyncio.sleep(1800)
    harness.everything = None
    harness.problems = dict.fromkeys(names[20:], DENIED)
    harness.asked.clear()

    await asyncio.sleep(300)

    assert max(len(harness.times(name)) for name in names[20:]) <= 300 / RETRY_CAP_SECONDS * 2 + 1


async def test_missing_answers_show_after_three_and_keep_the_count() -> None:
    harness = PollerHarness()
    harness.put("pack", 7)
    harness.order("pack")
    await asyncio.sleep(1)
    harness.everything = DOWN
    await asyncio.sleep(1.5)
    assert harness.reason("pack") == ""

    await asyncio.sleep(10)

    assert (harness.reason("pack"), harness.tasks("pack")) == ("BackendUnreachable", 7)


async def test_call_without_an_answer_ends_and_names_the_action() -> None:
    harness = PollerHarness()
    harness.takes = 3600
    harness.order("pack")
    await asyncio.sleep(6 * CALL_SECONDS)

    _, problem = harness.poller.latest(key_of("pack"))

    assert problem is not None
    assert problem.reason == "BackendUnreachable"
    assert "swf:CountPendingActivityTasks" in problem.message


async def test_throttled_place_slows_down_shows_it_on_all_pools_and_recovers() -> None:
    harness = PollerHarness()
    harness.put("a", 2)
    harness.order("a", "b", "c")
    await asyncio.sleep(5)
    harness.everything = BUSY
    await asyncio.sleep(60)
    during = [at for at in harness.times() if at > 30]

    assert [harness.reason(name) for name in "abc"] == ["Throttled"] * 3
    assert harness.tasks("a") == 2
    assert len(during) < 40

    harness.everything = None
    await asyncio.sleep(60)

    assert [harness.reason(name) for name in "abc"] == [""] * 3
    harness.asked.clear()
    await asyncio.sleep(60)
    assert len(harness.asked) > 60 * COUNTS_PER_SECOND * 0.8


async def test_single_throttled_call_is_not_shown() -> None:
    harness = PollerHarness()
    harness.order("a")
    await asyncio.sleep(2)
    harness.everything = BUSY
    await asyncio.sleep(0.5)
    harness.everything = None
    await asyncio.sleep(5)

    assert harness.reason("a") == ""
    assert harness.changed == ["a"]


async def test_left_pool_is_counted_no_more_and_keeps_the_quota_used() -> None:
    harness = PollerHarness()
    harness.order("pack")
    await asyncio.sleep(1)
    harness.poller.order(key_of("pack"), None)
    await asyncio.sleep(0.1)
    harness.asked.clear()
    await asyncio.sleep(5)

    assert harness.asked == []
    assert harness.tasks("pack") is None


async def test_pause_ends_all_counts() -> None:
    harness = PollerHarness(QUICK)
    harness.order("a", "b")
    await asyncio.sleep(1)
    harness.poller.pause()
    harness.asked.clear()
    await asyncio.sleep(5)

    assert harness.asked == []
    await harness.poller.stop()


async def test_last_count_tells_that_the_service_answers() -> None:
    harness = PollerHarness()
    harness.order("a")
    await asyncio.sleep(1)

    assert wall() - harness.poller.answered_at(key_of("a")) < 1
    assert harness.poller.answered_at(key_of("b")) == 0
