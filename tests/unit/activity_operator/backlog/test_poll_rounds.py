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


class RecordedPoller:
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
def recorded() -> RecordedPoller:
    return RecordedPoller()


async def test_500_pools_of_a_server_are_counted_in_one_read_every_100_ms(recorded: RecordedPoller) -> None:
    recorded.order(*(f"q{number}" for number in range(500)))
    await asyncio.sleep(0.35)

    assert [(round(at, 2), len(items)) for at, _, items in recorded.counter.reads] == [
        (0.02, 500),
        (0.12, 500),
        (0.22, 500),
        (0.32, 500),
    ]
    await recorded.counting.stop()


async def test_each_server_is_read_in_its_own_round(recorded: RecordedPoller) -> None:
    recorded.order("a")
    recorded.order("b", endpoint=THERE)
    await asyncio.sleep(0.05)

    assert {(endpoint, items) for _, endpoint, items in recorded.counter.reads} == {
        (HERE, ("queue:a",)),
        (THERE, ("queue:b",)),
    }
    await recorded.counting.stop()


async def test_first_count_is_notified_at_once_even_if_zero(recorded: RecordedPoller) -> None:
    recorded.set("b", 7)
    recorded.order("a", "b")
    await asyncio.sleep(0.05)

    assert recorded.notified == [(0.02, "a"), (0.02, "b")]
    assert recorded.counting.latest(("team", "b")) == (BacklogCount(7, True, 1_000_000.02), None)
    await recorded.counting.stop()


async def test_unchanged_count_is_not_notified_and_stays_fresh(recorded: RecordedPoller) -> None:
    recorded.set("a", 3)
    recorded.order("a")
    await asyncio.sleep(3600)

    assert len(recorded.notified) == 1
    count, _ = recorded.counting.latest(("team", "a"))
    assert count is not None
    assert wall() - count.observed_at <= 0.11
    await recorded.counting.stop()


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0), (5, 6)], ids=["from nothing", "to nothing", "one more"])
async def test_change_after_a_quiet_time_is_notified_with_the_next_round(
    recorded: RecordedPoller, before: int, after: int
) -> None:
    recorded.set("a", before)
    recorded.order("a")
    await asyncio.sleep(10.0)
    recorded.notified.clear()
    recorded.set("a", after)
    await asyncio.sleep(0.1)

    assert len(recorded.notified) == 1
    assert recorded.tasks("a") == after
    await recorded.counting.stop()


async def test_constant_changes_are_notified_four_times_a_second(
    recorded: RecordedPoller,
) -> None:
    recorded.order("a")
    await asyncio.sleep(10.0)
    recorded.notified.clear()
    for number in range(1, 101):
        recorded.set("a", number % 7 + 1)
        await asyncio.sleep(0.1)
    busy = len(recorded.notified)
    recorded.set("a", 99)
    await asyncio.sleep(60)

    assert 30 <= busy <= 40
    assert all(later - sooner >= 0.25 for (sooner, _), (later, _) in pairwise(recorded.notified))
    assert recorded.notified[-1][0] <= 20.4, "the last change was notified late"
    assert recorded.tasks("a") == 99
    await recorded.counting.stop()


@pytest.mark.parametrize("changes", [1, 2, 3, 4, 5])
async def test_last_of_several_quick_changes_is_notified(recorded: RecordedPoller, changes: int) -> None:
    recorded.order("a")
    await asyncio.sleep(10.0)
    for number in range(changes):
        recorded.set("a", 10 + number)
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.3)

    assert recorded.values[-1] == 10 + changes - 1
    await recorded.counting.stop()


async def test_delayed_notification_does_not_wait_for_the_next_slow_round(recorded: RecordedPoller) -> None:
    recorded.order("a", endpoint=SLOW)
    await asyncio.sleep(1.0)
    recorded.set("a", 5)
    recorded.order("b", endpoint=SLOW)
    await asyncio.sleep(0.1)
    recorded.set("a", 6)
    recorded.order("c", endpoint=SLOW)
    await asyncio.sleep(0.5)

    assert recorded.values[-1] == 6
    assert len(recorded.counter.reads) == 4
    await recorded.counting.stop()


async def test_delayed_notification_does_not_wait_for_a_failing_server(recorded: RecordedPoller) -> None:
    recorded.order("a")
    await asyncio.sleep(1.0)
    recorded.set("a", 5)
    await asyncio.sleep(0.1)
    recorded.set("a", 6)
    await asyncio.sleep(0.1)
    recorded.notified.clear()
    recorded.counter.fails = DOWN
    await asyncio.sleep(0.1)

    assert [name for _, name in recorded.notified] == ["a"]
    assert (recorded.tasks("a"), recorded.error("a")) == (6, "")
    await recorded.counting.stop()


async def test_unreachable_server_is_reported_after_three_failures_in_a_row(recorded: RecordedPoller) -> None:
    recorded.set("a", 4)
    recorded.order("a")
    await asyncio.sleep(1.0)
    recorded.notified.clear()
    recorded.counter.reads.clear()
    recorded.counter.fails = DOWN
    await asyncio.sleep(0.5)
    assert (recorded.error("a"), len(recorded.counter.reads)) == ("", 2)

    await asyncio.sleep(0.5)
    assert (recorded.error("a"), len(recorded.counter.reads), len(recorded.notified)) == ("BackendUnreachable", 3, 1)
    assert recorded.tasks("a") == 4, "the last count is kept with its time"
    await recorded.counting.stop()


async def test_two_failures_in_a_row_are_not_notified(recorded: RecordedPoller) -> None:
    recorded.order("a")
    await asyncio.sleep(1.0)
    recorded.notified.clear()
    for _ in range(20):
        recorded.counter.fails = DOWN
        await asyncio.sleep(0.5)
        recorded.counter.fails = None
        await asyncio.sleep(1.5)

    assert recorded.notified == []
    await recorded.counting.stop()


@pytest.mark.parametrize("reason", ["AccessDenied", "TlsFailed", "SecretUnusable"])
async def test_error_that_a_person_must_fix_is_notified_once_and_at_once(recorded: RecordedPoller, reason: str) -> None:
    recorded.counter.fails = SourceProblemError(reason, "correct it")
    recorded.order("a", "b")
    await asyncio.sleep(600)

    assert recorded.notified == [(0.02, "a"), (0.02, "b")]
    assert recorded.error("b") == reason
    await recorded.counting.stop()


async def test_failing_server_is_read_with_backoff_until_it_recovers(recorded: RecordedPoller) -> None:
    recorded.counter.fails = DOWN
    recorded.order("a")
    await asyncio.sleep(70)

    assert recorded.counter.gaps()[:9] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    recorded.counter.fails = None
    await asyncio.sleep(15)
    assert (recorded.tasks("a"), recorded.error("a")) == (0, "")
    assert recorded.counter.gaps()[-3:] == [0.1, 0.1, 0.1]
    assert len(recorded.notified) == 2
    await recorded.counting.stop()


async def test_error_of_one_queue_does_not_affect_other_pools(recorded: RecordedPoller) -> None:
    recorded.set("odd", ODD)
    recorded.set("a", 2)
    recorded.order("odd", "a")
    await asyncio.sleep(5)

    assert (recorded.tasks("odd"), recorded.error("odd")) == (None, "QueryFailed")
    assert (recorded.tasks("a"), recorded.error("a")) == (2, "")
    assert len(recorded.notified) == 2
    assert recorded.counter.gaps()[-1] == 0.1

    recorded.set("odd", 1)
    await asyncio.sleep(0.1)
    assert (recorded.tasks("odd"), recorded.error("odd")) == (1, "")
    await recorded.counting.stop()


async def test_server_that_refuses_every_queue_is_read_with_backoff(recorded: RecordedPoller) -> None:
    recorded.set("a", DENIED)
    recorded.order("a")
    await asyncio.sleep(10)

    assert recorded.counter.gaps()[:4] == [0.25, 0.5, 1.0, 2.0]
    assert recorded.error("a") == "AccessDenied"
    await recorded.counting.stop()


async def test_read_without_an_answer_times_out_after_ten_seconds(recorded: RecordedPoller) -> None:
    recorded.counter.takes = 1e6
    recorded.order("a")
    await asyncio.sleep(31)

    assert recorded.counter.gaps() == [10.25, 10.5]
    assert recorded.error("a") == "BackendUnreachable"
    await recorded.counting.stop()


async def test_rounds_of_a_slow_server_keep_a_pause(recorded: RecordedPoller) -> None:
    recorded.counter.takes = 0.4
    recorded.order("a")
    await asyncio.sleep(5)

    assert all(0.42 <= gap <= 0.43 for gap in recorded.counter.gaps())
    await recorded.counting.stop()


async def test_observation_time_is_the_time_of_the_request(recorded: RecordedPoller) -> None:
    recorded.counter.takes = 7.0
    recorded.order("a")
    await asyncio.sleep(7.1)

    count, _ = recorded.counting.latest(("team", "a"))
    assert count is not None
    assert count.observed_at == 1_000_000.02
    await recorded.counting.stop()


@pytest.mark.parametrize("broken", [ZeroDivisionError(), None], ids=["it raises", "it answers too little"])
async def test_unexpected_error_is_reported_as_backend_unreachable(
    recorded: RecordedPoller, broken: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def short(endpoint: SourceEndpoint, items: Sequence[str]) -> Sequence[int]:
        return [0] * (len(items) - 1)

    right = recorded.counter.read
    recorded.counter.fails = broken
    if broken is None:
        monkeypatch.setattr(recorded.counter, "read", short)
    recorded.order("a")
    await asyncio.sleep(3)
    assert recorded.error("a") == "BackendUnreachable"

    recorded.counter.fails = None
    monkeypatch.setattr(recorded.counter, "read", right)
    await asyncio.sleep(3)
    assert recorded.error("a") == ""
    await recorded.counting.stop()


async def test_pool_that_changes_its_queue_gets_no_count_of_the_former_one(recorded: RecordedPoller) -> None:
    recorded.counter.takes = 1.0
    recorded.set("a", 5)
    recorded.order("a")
    await asyncio.sleep(0.5)
    recorded.counting.order(("team", "a"), HERE, "queue:other")
    await asyncio.sleep(0.8)
    assert recorded.tasks("a") is None
    assert recorded.notified == []

    await asyncio.sleep(1.5)
    assert recorded.tasks("a") == 0
    await recorded.counting.stop()


async def test_pool_that_moves_to_another_server_starts_without_a_count(recorded: RecordedPoller) -> None:
    recorded.set("a", 5)
    recorded.order("a")
    await asyncio.sleep(1.0)
    recorded.order("a", endpoint=THERE)
    assert recorded.tasks("a") is None

    await asyncio.sleep(0.05)
    assert recorded.tasks("a") == 5
    assert (recorded.counter.open, recorded.counter.left) == ({THERE}, [HERE])
    await recorded.counting.stop()
    assert recorded.counter.open == set()


async def test_paused_counting_reads_nothing_and_starts_without_counts(recorded: RecordedPoller) -> None:
    recorded.set("a", 5)
    recorded.order("a", "b")
    await asyncio.sleep(1.0)
    recorded.counting.pause()
    asked = len(recorded.counter.reads)
    await asyncio.sleep(60)
    assert len(recorded.counter.reads) == asked
    assert (recorded.tasks("a"), recorded.counter.open) == (None, set())

    recorded.notified.clear()
    recorded.order("a", "b")
    await asyncio.sleep(0.05)
    assert [name for _, name in recorded.notified] == ["a", "b"]
    await recorded.counting.stop()


async def test_repeated_order_changes_nothing(recorded: RecordedPoller) -> None:
    recorded.order("a")
    for _ in range(50):
        await asyncio.sleep(0.1)
        recorded.order("a")

    assert len(recorded.notified) == 1
    assert set(recorded.counter.gaps()) == {0.1}
    await recorded.counting.stop()


async def test_pool_that_joins_a_slow_round_is_counted_at_once(recorded: RecordedPoller) -> None:
    recorded.order("a", endpoint=SLOW)
    await asyncio.sleep(5.0)
    recorded.order("b", endpoint=SLOW)
    await asyncio.sleep(0.1)

    assert recorded.tasks("b") == 0
    assert recorded.counter.gaps() == [5.0]
    await recorded.counting.stop()


def test_repr_of_a_place_hides_url_and_token() -> None:
    shown = repr(SourceEndpoint("redis://:hunter2@here", 0.1, "s3cret"))

    assert shown == "SourceEndpoint(interval_seconds=0.1, source_hosts=('*',))"
