"""Polled counts: one round for all pools of a server, rate-limited notifications, failures retried with back-off."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from activity_operator.backlog.call_metrics import CallObserver, ignore_call
from activity_operator.backlog.poll_rounds import BacklogPoller, SourceEndpoint
from activity_operator.backlog.protocol import Key, SourceProblemError
from activity_operator.core.observation import BacklogCount
from tests.unit.activity_operator.virtual_time import elapsed, wall

HERE, THERE = SourceEndpoint("redis://here", 0.1), SourceEndpoint("redis://there", 0.1)
SLOW = SourceEndpoint("http://prometheus", 15.0)
DENIED = SourceProblemError("AccessDenied", "correct the password")
DOWN = SourceProblemError("BackendUnreachable", "no answer")
ODD = SourceProblemError("QueryFailed", "another type")


class FakeCounter:
    """Returns the value set for each item, and records its calls."""

    def __init__(self) -> None:
        self.waits: dict[str, int | SourceProblemError] = {}
        self.fails: Exception | None = None
        self.takes = 0.0
        self.reads: list[tuple[float, SourceEndpoint, tuple[str, ...]]] = []
        self.open: set[SourceEndpoint] = set()
        self.left: list[SourceEndpoint] = []
        self.slow_to_end = 0.0
        self.closed_at = 0.0
        self.observed: CallObserver = ignore_call

    async def read(self, endpoint: SourceEndpoint, items: Sequence[str]) -> Sequence[int | SourceProblemError]:
        self.reads.append((elapsed(), endpoint, tuple(items)))
        self.open.add(endpoint)
        try:
            await asyncio.sleep(self.takes)
        except asyncio.CancelledError:
            await asyncio.sleep(self.slow_to_end)
            raise
        if self.fails is not None:
            raise self.fails
        return [self.waits.get(one, 0) for one in items]

    async def wait(self, endpoint: SourceEndpoint, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self, endpoint: SourceEndpoint) -> None:
        self.open.discard(endpoint)
        self.left.append(endpoint)
        self.closed_at = elapsed()

    def gaps(self) -> list[float]:
        """Return the seconds between consecutive rounds."""
        return [round(later - sooner, 2) for (sooner, *_), (later, *_) in pairwise(self.reads)]


class Scene:
    """The counting under test, with the time of each notification."""

    def __init__(self) -> None:
        self.counter = FakeCounter()
        self.notified: list[tuple[float, str]] = []
        self.values: list[int | None] = []
        self.counting = BacklogPoller(self.counter, exact=True, on_change=self._take, now=wall, jitter=lambda: 1.0)

    def _take(self, key: Key) -> None:
        self.notified.append((round(elapsed(), 2), key[1]))
        self.values.append(self.tasks(key[1]))

    def order(self, *names: str, endpoint: SourceEndpoint = HERE) -> None:
        for name in names:
            self.counting.order(("team", name), endpoint, f"queue:{name}")

    def set(self, name: str, waits: int | SourceProblemError) -> None:
        self.counter.waits[f"queue:{name}"] = waits

    def tasks(self, name: str) -> int | None:
        count, _ = self.counting.latest(("team", name))
        return None if count is None else count.tasks

    def error(self, name: str) -> str:
        _, error = self.counting.latest(("team", name))
        return "" if error is None else error.reason


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_500_pools_of_a_server_are_counted_in_one_read_every_100_ms(scene: Scene) -> None:
    scene.order(*(f"q{number}" for number in range(500)))
    await asyncio.sleep(0.35)

    assert [(round(at, 2), len(items)) for at, _, items in scene.counter.reads] == [
        (0.02, 500),
        (0.12, 500),
        (0.22, 500),
        (0.32, 500),
    ]
    await scene.counting.stop()


async def test_each_server_is_read_in_its_own_round(scene: Scene) -> None:
    scene.order("a")
    scene.order("b", endpoint=THERE)
    await asyncio.sleep(0.05)

    assert {(endpoint, items) for _, endpoint, items in scene.counter.reads} == {
        (HERE, ("queue:a",)),
        (THERE, ("queue:b",)),
    }
    await scene.counting.stop()


async def test_first_count_is_notified_at_once_even_if_zero(scene: Scene) -> None:
    scene.set("b", 7)
    scene.order("a", "b")
    await asyncio.sleep(0.05)

    assert scene.notified == [(0.02, "a"), (0.02, "b")]
    assert scene.counting.latest(("team", "b")) == (BacklogCount(7, True, 1_000_000.02), None)
    await scene.counting.stop()


async def test_unchanged_count_is_not_notified_and_stays_fresh(scene: Scene) -> None:
    scene.set("a", 3)
    scene.order("a")
    await asyncio.sleep(3600)

    assert len(scene.notified) == 1
    count, _ = scene.counting.latest(("team", "a"))
    assert count is not None
    assert wall() - count.observed_at <= 0.11
    await scene.counting.stop()


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0), (5, 6)], ids=["from nothing", "to nothing", "one more"])
async def test_change_after_a_quiet_time_is_notified_with_the_next_round(scene: Scene, before: int, after: int) -> None:
    scene.set("a", before)
    scene.order("a")
    await asyncio.sleep(10.0)
    scene.notified.clear()
    scene.set("a", after)
    await asyncio.sleep(0.1)

    assert len(scene.notified) == 1
    assert scene.tasks("a") == after
    await scene.counting.stop()


async def test_constant_changes_are_notified_four_times_a_second(
    scene: Scene,
) -> None:
    scene.order("a")
    await asyncio.sleep(10.0)
    scene.notified.clear()
    for number in range(1, 101):
        scene.set("a", number % 7 + 1)
        await asyncio.sleep(0.1)
    busy = len(scene.notified)
    scene.set("a", 99)
    await asyncio.sleep(60)

    assert 30 <= busy <= 40
    assert all(later - sooner >= 0.25 for (sooner, _), (later, _) in pairwise(scene.notified))
    assert scene.notified[-1][0] <= 20.4, "the last change was notified late"
    assert scene.tasks("a") == 99
    await scene.counting.stop()


@pytest.mark.parametrize("changes", [1, 2, 3, 4, 5])
async def test_last_of_several_quick_changes_is_notified(scene: Scene, changes: int) -> None:
    scene.order("a")
    await asyncio.sleep(10.0)
    for number in range(changes):
        scene.set("a", 10 + number)
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.3)

    assert scene.values[-1] == 10 + changes - 1
    await scene.counting.stop()


async def test_delayed_notification_does_not_wait_for_the_next_slow_round(scene: Scene) -> None:
    scene.order("a", endpoint=SLOW)
    await asyncio.sleep(1.0)
    scene.set("a", 5)
    scene.order("b", endpoint=SLOW)
    await asyncio.sleep(0.1)
    scene.set("a", 6)
    scene.order("c", endpoint=SLOW)
    await asyncio.sleep(0.5)

    assert scene.values[-1] == 6
    assert len(scene.counter.reads) == 4
    await scene.counting.stop()


async def test_delayed_notification_does_not_wait_for_a_failing_server(scene: Scene) -> None:
    scene.order("a")
    await asyncio.sleep(1.0)
    scene.set("a", 5)
    await asyncio.sleep(0.1)
    scene.set("a", 6)
    await asyncio.sleep(0.1)
    scene.notified.clear()
    scene.counter.fails = DOWN
    await asyncio.sleep(0.1)

    assert [name for _, name in scene.notified] == ["a"]
    assert (scene.tasks("a"), scene.error("a")) == (6, "")
    await scene.counting.stop()


async def test_unreachable_server_is_reported_after_three_failures_in_a_row(scene: Scene) -> None:
    scene.set("a", 4)
    scene.order("a")
    await asyncio.sleep(1.0)
    scene.notified.clear()
    scene.counter.reads.clear()
    scene.counter.fails = DOWN
    await asyncio.sleep(0.5)
    assert (scene.error("a"), len(scene.counter.reads)) == ("", 2)

    await asyncio.sleep(0.5)
    assert (scene.error("a"), len(scene.counter.reads), len(scene.notified)) == ("BackendUnreachable", 3, 1)
    assert scene.tasks("a") == 4, "the last count is kept with its time"
    await scene.counting.stop()


async def test_two_failures_in_a_row_are_not_notified(scene: Scene) -> None:
    scene.order("a")
    await asyncio.sleep(1.0)
    scene.notified.clear()
    for _ in range(20):
        scene.counter.fails = DOWN
        await asyncio.sleep(0.5)
        scene.counter.fails = None
        await asyncio.sleep(1.5)

    assert scene.notified == []
    await scene.counting.stop()


@pytest.mark.parametrize("reason", ["AccessDenied", "TlsFailed", "SecretUnusable"])
async def test_error_that_a_person_must_fix_is_notified_once_and_at_once(scene: Scene, reason: str) -> None:
    scene.counter.fails = SourceProblemError(reason, "correct it")
    scene.order("a", "b")
    await asyncio.sleep(600)

    assert scene.notified == [(0.02, "a"), (0.02, "b")]
    assert scene.error("b") == reason
    await scene.counting.stop()


async def test_failing_server_is_read_with_backoff_until_it_recovers(scene: Scene) -> None:
    scene.counter.fails = DOWN
    scene.order("a")
    await asyncio.sleep(70)

    assert scene.counter.gaps()[:9] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    scene.counter.fails = None
    await asyncio.sleep(15)
    assert (scene.tasks("a"), scene.error("a")) == (0, "")
    assert scene.counter.gaps()[-3:] == [0.1, 0.1, 0.1]
    assert len(scene.notified) == 2
    await scene.counting.stop()


async def test_error_of_one_queue_does_not_affect_other_pools(scene: Scene) -> None:
    scene.set("odd", ODD)
    scene.set("a", 2)
    scene.order("odd", "a")
    await asyncio.sleep(5)

    assert (scene.tasks("odd"), scene.error("odd")) == (None, "QueryFailed")
    assert (scene.tasks("a"), scene.error("a")) == (2, "")
    assert len(scene.notified) == 2
    assert scene.counter.gaps()[-1] == 0.1

    scene.set("odd", 1)
    await asyncio.sleep(0.1)
    assert (scene.tasks("odd"), scene.error("odd")) == (1, "")
    await scene.counting.stop()


async def test_server_that_refuses_every_queue_is_read_with_backoff(scene: Scene) -> None:
    scene.set("a", DENIED)
    scene.order("a")
    await asyncio.sleep(10)

    assert scene.counter.gaps()[:4] == [0.25, 0.5, 1.0, 2.0]
    assert scene.error("a") == "AccessDenied"
    await scene.counting.stop()


async def test_read_without_an_answer_times_out_after_ten_seconds(scene: Scene) -> None:
    scene.counter.takes = 1e6
    scene.order("a")
    await asyncio.sleep(31)

    assert scene.counter.gaps() == [10.25, 10.5]
    assert scene.error("a") == "BackendUnreachable"
    await scene.counting.stop()


async def test_rounds_of_a_slow_server_keep_a_pause(scene: Scene) -> None:
    scene.counter.takes = 0.4
    scene.order("a")
    await asyncio.sleep(5)

    assert all(0.42 <= gap <= 0.43 for gap in scene.counter.gaps())
    await scene.counting.stop()


async def test_observation_time_is_the_time_of_the_request(scene: Scene) -> None:
    scene.counter.takes = 7.0
    scene.order("a")
    await asyncio.sleep(7.1)

    count, _ = scene.counting.latest(("team", "a"))
    assert count is not None
    assert count.observed_at == 1_000_000.02
    await scene.counting.stop()


@pytest.mark.parametrize("broken", [ZeroDivisionError(), None], ids=["it raises", "it answers too little"])
async def test_unexpected_error_is_reported_as_backend_unreachable(
    scene: Scene, broken: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def short(endpoint: SourceEndpoint, items: Sequence[str]) -> Sequence[int]:
        return [0] * (len(items) - 1)

    right = scene.counter.read
    scene.counter.fails = broken
    if broken is None:
        monkeypatch.setattr(scene.counter, "read", short)
    scene.order("a")
    await asyncio.sleep(3)
    assert scene.error("a") == "BackendUnreachable"

    scene.counter.fails = None
    monkeypatch.setattr(scene.counter, "read", right)
    await asyncio.sleep(3)
    assert scene.error("a") == ""
    await scene.counting.stop()


async def test_pool_that_changes_its_queue_gets_no_count_of_the_former_one(scene: Scene) -> None:
    scene.counter.takes = 1.0
    scene.set("a", 5)
    scene.order("a")
    await asyncio.sleep(0.5)
    scene.counting.order(("team", "a"), HERE, "queue:other")
    await asyncio.sleep(0.8)
    assert scene.tasks("a") is None
    assert scene.notified == []

    await asyncio.sleep(1.5)
    assert scene.tasks("a") == 0
    await scene.counting.stop()


async def test_pool_that_moves_to_another_server_starts_without_a_count(scene: Scene) -> None:
    scene.set("a", 5)
    scene.order("a")
    await asyncio.sleep(1.0)
    scene.order("a", endpoint=THERE)
    assert scene.tasks("a") is None

    await asyncio.sleep(0.05)
    assert scene.tasks("a") == 5
    assert (scene.counter.open, scene.counter.left) == ({THERE}, [HERE])
    await scene.counting.stop()
    assert scene.counter.open == set()


async def test_paused_counting_reads_nothing_and_starts_without_counts(scene: Scene) -> None:
    scene.set("a", 5)
    scene.order("a", "b")
    await asyncio.sleep(1.0)
    scene.counting.pause()
    asked = len(scene.counter.reads)
    await asyncio.sleep(60)
    assert len(scene.counter.reads) == asked
    assert (scene.tasks("a"), scene.counter.open) == (None, set())

    scene.notified.clear()
    scene.order("a", "b")
    await asyncio.sleep(0.05)
    assert [name for _, name in scene.notified] == ["a", "b"]
    await scene.counting.stop()


async def test_repeated_order_changes_nothing(scene: Scene) -> None:
    scene.order("a")
    for _ in range(50):
        await asyncio.sleep(0.1)
        scene.order("a")

    assert len(scene.notified) == 1
    assert set(scene.counter.gaps()) == {0.1}
    await scene.counting.stop()


async def test_pool_that_joins_a_slow_round_is_counted_at_once(scene: Scene) -> None:
    scene.order("a", endpoint=SLOW)
    await asyncio.sleep(5.0)
    scene.order("b", endpoint=SLOW)
    await asyncio.sleep(0.1)

    assert scene.tasks("b") == 0
    assert scene.counter.gaps() == [5.0]
    await scene.counting.stop()


def test_repr_of_a_place_hides_url_and_token() -> None:
    shown = repr(SourceEndpoint("redis://:hunter2@here", 0.1, "s3cret"))

    assert shown == "SourceEndpoint(interval_seconds=0.1, source_hosts=('*',))"
