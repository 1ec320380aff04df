"""All pools of a server in one round; a change is told at once, then rarely; what fails is asked again, ever later."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from activity_operator.backlog.counting import Counting, Place
from activity_operator.backlog.observed import Observed, unobserved
from activity_operator.backlog.protocol import Key, SourceProblemError
from activity_operator.core.signal import Signal
from tests.unit.activity_operator.virtual_time import elapsed, settle, wall

HERE, THERE = Place("redis://here", 0.1), Place("redis://there", 0.1)
SLOW = Place("http://prometheus", 15.0)
DENIED = SourceProblemError("AccessDenied", "correct the password")
DOWN = SourceProblemError("BackendUnreachable", "no answer")
ODD = SourceProblemError("QueryFailed", "another type")


class FakeCounter:
    """Tells of each item what it was set to; keeps when it was asked about how many."""

    def __init__(self) -> None:
        self.waits: dict[str, int | SourceProblemError] = {}
        self.fails: Exception | None = None
        self.takes = 0.0
        self.reads: list[tuple[float, Place, tuple[str, ...]]] = []
        self.open: set[Place] = set()
        self.left: list[Place] = []
        self.slow_to_end = 0.0
        self.closed_at = 0.0
        self.observed: Observed = unobserved

    async def read(self, place: Place, items: Sequence[str]) -> Sequence[int | SourceProblemError]:
        self.reads.append((elapsed(), place, tuple(items)))
        self.open.add(place)
        try:
            await asyncio.sleep(self.takes)
        except asyncio.CancelledError:
            await asyncio.sleep(self.slow_to_end)
            raise
        if self.fails is not None:
            raise self.fails
        return [self.waits.get(one, 0) for one in items]

    async def rest(self, place: Place, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def leave(self, place: Place) -> None:
        self.open.discard(place)
        self.left.append(place)
        self.closed_at = elapsed()

    def asked(self) -> list[float]:
        """Return the seconds between two rounds, one after the other."""
        return [round(later - sooner, 2) for (sooner, *_), (later, *_) in pairwise(self.reads)]


class Told:
    """The counting under test, and whom it told when."""

    def __init__(self) -> None:
        self.counter = FakeCounter()
        self.told: list[tuple[float, str]] = []
        self.values: list[int | None] = []
        self.counting = Counting(self.counter, exact=True, on_change=self._take, now=wall, dice=lambda: 1.0)

    def _take(self, key: Key) -> None:
        self.told.append((round(elapsed(), 2), key[1]))
        self.values.append(self.tasks(key[1]))

    def order(self, *names: str, place: Place = HERE) -> None:
        for name in names:
            self.counting.order(("team", name), place, f"queue:{name}")

    def set(self, name: str, waits: int | SourceProblemError) -> None:
        self.counter.waits[f"queue:{name}"] = waits

    def tasks(self, name: str) -> int | None:
        signal, _ = self.counting.said(("team", name))
        return None if signal is None else signal.tasks

    def error(self, name: str) -> str:
        _, error = self.counting.said(("team", name))
        return "" if error is None else error.reason


@pytest.fixture
def told() -> Told:
    return Told()


async def test_500_pools_of_a_server_are_one_question_every_tenth_of_a_second(told: Told) -> None:
    told.order(*(f"q{number}" for number in range(500)))
    await asyncio.sleep(0.35)

    assert [(round(at, 2), len(items)) for at, _, items in told.counter.reads] == [
        (0.02, 500),
        (0.12, 500),
        (0.22, 500),
        (0.32, 500),
    ]
    await told.counting.stop()


async def test_servers_are_asked_apart(told: Told) -> None:
    told.order("a")
    told.order("b", place=THERE)
    await asyncio.sleep(0.05)

    assert {(place, items) for _, place, items in told.counter.reads} == {
        (HERE, ("queue:a",)),
        (THERE, ("queue:b",)),
    }
    await told.counting.stop()


async def test_the_first_count_is_told_at_once_be_it_nothing(told: Told) -> None:
    told.set("b", 7)
    told.order("a", "b")
    await asyncio.sleep(0.05)

    assert told.told == [(0.02, "a"), (0.02, "b")]
    assert told.counting.said(("team", "b")) == (Signal(7, True, 1_000_000.02), None)
    await told.counting.stop()


async def test_nothing_is_told_while_nothing_changes_and_the_count_stays_young(told: Told) -> None:
    told.set("a", 3)
    told.order("a")
    await asyncio.sleep(3600)

    assert len(told.told) == 1
    signal, _ = told.counting.said(("team", "a"))
    assert signal is not None
    assert wall() - signal.observed_at <= 0.11
    await told.counting.stop()


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0), (5, 6)], ids=["from nothing", "to nothing", "one more"])
async def test_a_change_after_quiet_is_told_with_the_next_round(told: Told, before: int, after: int) -> None:
    told.set("a", before)
    told.order("a")
    await asyncio.sleep(10.0)
    told.told.clear()
    told.set("a", after)
    await asyncio.sleep(0.1)

    assert len(told.told) == 1
    assert told.tasks("a") == after
    await told.counting.stop()


async def test_a_queue_that_changes_all_the_time_is_told_four_times_a_second_and_its_last_count_never_lost(
    told: Told,
) -> None:
    told.order("a")
    await asyncio.sleep(10.0)
    told.told.clear()
    for number in range(1, 101):
        told.set("a", number % 7 + 1)
        await asyncio.sleep(0.1)
    busy = len(told.told)
    told.set("a", 99)
    await asyncio.sleep(60)

    assert 30 <= busy <= 40
    assert all(later - sooner >= 0.25 for (sooner, _), (later, _) in pairwise(told.told))
    assert told.told[-1][0] <= 20.4, "the last change waited for another"
    assert told.tasks("a") == 99
    await told.counting.stop()


@pytest.mark.parametrize("changes", [1, 2, 3, 4, 5])
async def test_the_last_of_some_quick_changes_is_told_wherever_it_falls(told: Told, changes: int) -> None:
    told.order("a")
    await asyncio.sleep(10.0)
    for number in range(changes):
        told.set("a", 10 + number)
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.3)

    assert told.values[-1] == 10 + changes - 1
    await told.counting.stop()


async def test_a_change_that_waits_to_be_told_does_not_wait_for_a_server_that_is_rarely_asked(told: Told) -> None:
    told.order("a", place=SLOW)
    await asyncio.sleep(1.0)
    told.set("a", 5)
    told.order("b", place=SLOW)
    await asyncio.sleep(0.1)
    told.set("a", 6)
    told.order("c", place=SLOW)
    await asyncio.sleep(0.5)

    assert told.values[-1] == 6
    assert len(told.counter.reads) == 4
    await told.counting.stop()


async def test_a_change_that_waits_to_be_told_does_not_wait_for_a_server_that_fails(told: Told) -> None:
    told.order("a")
    await asyncio.sleep(1.0)
    told.set("a", 5)
    await asyncio.sleep(0.1)
    told.set("a", 6)
    await asyncio.sleep(0.1)
    told.told.clear()
    told.counter.fails = DOWN
    await asyncio.sleep(0.1)

    assert [name for _, name in told.told] == ["a"]
    assert (told.tasks("a"), told.error("a")) == (6, "")
    await told.counting.stop()


async def test_a_server_that_does_not_answer_is_told_after_three_tries_in_a_row(told: Told) -> None:
    told.set("a", 4)
    told.order("a")
    await asyncio.sleep(1.0)
    told.told.clear()
    told.counter.reads.clear()
    told.counter.fails = DOWN
    await asyncio.sleep(0.5)
    assert (told.error("a"), len(told.counter.reads)) == ("", 2)

    await asyncio.sleep(0.5)
    assert (told.error("a"), len(told.counter.reads), len(told.told)) == ("BackendUnreachable", 3, 1)
    assert told.tasks("a") == 4, "the last count goes on to be known, with its time"
    await told.counting.stop()


async def test_two_failures_are_a_blip_that_nobody_hears_of(told: Told) -> None:
    told.order("a")
    await asyncio.sleep(1.0)
    told.told.clear()
    for _ in range(20):
        told.counter.fails = DOWN
        await asyncio.sleep(0.5)
        told.counter.fails = None
        await asyncio.sleep(1.5)

    assert told.told == []
    await told.counting.stop()


@pytest.mark.parametrize("reason", ["AccessDenied", "TlsFailed", "SecretUnusable"])
async def test_what_a_person_must_correct_is_told_at_once_and_once(told: Told, reason: str) -> None:
    told.counter.fails = SourceProblemError(reason, "correct it")
    told.order("a", "b")
    await asyncio.sleep(600)

    assert told.told == [(0.02, "a"), (0.02, "b")]
    assert told.error("b") == reason
    await told.counting.stop()


async def test_a_server_that_fails_is_asked_ever_less_often_and_as_before_when_it_is_back(told: Told) -> None:
    told.counter.fails = DOWN
    told.order("a")
    await asyncio.sleep(70)

    assert told.counter.asked()[:9] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    told.counter.fails = None
    await asyncio.sleep(15)
    assert (told.tasks("a"), told.error("a")) == (0, "")
    assert told.counter.asked()[-3:] == [0.1, 0.1, 0.1]
    assert len(told.told) == 2
    await told.counting.stop()


async def test_a_list_of_another_type_hurts_its_own_pool_only(told: Told) -> None:
    told.set("odd", ODD)
    told.set("a", 2)
    told.order("odd", "a")
    await asyncio.sleep(5)

    assert (told.tasks("odd"), told.error("odd")) == (None, "QueryFailed")
    assert (told.tasks("a"), told.error("a")) == (2, "")
    assert len(told.told) == 2
    assert told.counter.asked()[-1] == 0.1

    told.set("odd", 1)
    await asyncio.sleep(0.1)
    assert (told.tasks("odd"), told.error("odd")) == (1, "")
    await told.counting.stop()


async def test_a_server_that_refuses_every_list_is_asked_ever_less_often(told: Told) -> None:
    told.set("a", DENIED)
    told.order("a")
    await asyncio.sleep(10)

    assert told.counter.asked()[:4] == [0.25, 0.5, 1.0, 2.0]
    assert told.error("a") == "AccessDenied"
    await told.counting.stop()


async def test_a_server_that_never_answers_is_given_up_after_ten_seconds(told: Told) -> None:
    told.counter.takes = 1e6
    told.order("a")
    await asyncio.sleep(31)

    assert told.counter.asked() == [10.25, 10.5]
    assert told.error("a") == "BackendUnreachable"
    await told.counting.stop()


async def test_a_slow_server_is_not_asked_without_a_pause(told: Told) -> None:
    told.counter.takes = 0.4
    told.order("a")
    await asyncio.sleep(5)

    assert all(0.42 <= gap <= 0.43 for gap in told.counter.asked())
    await told.counting.stop()


async def test_a_count_says_when_it_was_asked_for_not_when_the_answer_came(told: Told) -> None:
    told.counter.takes = 7.0
    told.order("a")
    await asyncio.sleep(7.1)

    signal, _ = told.counting.said(("team", "a"))
    assert signal is not None
    assert signal.observed_at == 1_000_000.02
    await told.counting.stop()


@pytest.mark.parametrize("broken", [ZeroDivisionError(), None], ids=["it raises", "it answers too little"])
async def test_what_nobody_expected_is_a_failure_like_others(
    told: Told, broken: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def short(place: Place, items: Sequence[str]) -> Sequence[int]:
        return [0] * (len(items) - 1)

    right = told.counter.read
    told.counter.fails = broken
    if broken is None:
        monkeypatch.setattr(told.counter, "read", short)
    told.order("a")
    await asyncio.sleep(3)
    assert told.error("a") == "BackendUnreachable"

    told.counter.fails = None
    monkeypatch.setattr(told.counter, "read", right)
    await asyncio.sleep(3)
    assert told.error("a") == ""
    await told.counting.stop()


async def test_a_pool_that_leaves_during_a_round_is_not_told(told: Told) -> None:
    told.counter.takes = 1.0
    told.order("a", "b")
    await asyncio.sleep(0.5)
    told.counting.order(("team", "a"), None)
    await asyncio.sleep(1.0)

    assert [name for _, name in told.told] == ["b"]
    assert told.tasks("a") is None
    await told.counting.stop()


async def test_a_pool_that_names_another_queue_during_a_round_gets_no_count_of_the_former_one(told: Told) -> None:
    told.counter.takes = 1.0
    told.set("a", 5)
    told.order("a")
    await asyncio.sleep(0.5)
    told.counting.order(("team", "a"), HERE, "queue:other")
    await asyncio.sleep(0.8)
    assert told.tasks("a") is None
    assert told.told == []

    await asyncio.sleep(1.5)
    assert told.tasks("a") == 0
    await told.counting.stop()


async def test_a_pool_that_moves_to_another_server_begins_anew(told: Told) -> None:
    told.set("a", 5)
    told.order("a")
    await asyncio.sleep(1.0)
    told.order("a", place=THERE)
    assert told.tasks("a") is None

    await asyncio.sleep(0.05)
    assert told.tasks("a") == 5
    assert (told.counter.open, told.counter.left) == ({THERE}, [HERE])
    await told.counting.stop()
    assert told.counter.open == set()


async def test_the_last_pool_of_a_server_closes_what_was_open(told: Told) -> None:
    told.order("a", "b")
    await asyncio.sleep(1.0)
    told.counting.order(("team", "a"), None)
    await asyncio.sleep(1.0)
    assert told.counter.left == []

    told.counting.order(("team", "b"), None)
    asked = len(told.counter.reads)
    await asyncio.sleep(60)
    assert (told.counter.left, len(told.counter.reads)) == ([HERE], asked)


async def test_a_pool_that_comes_back_while_its_connection_is_closed_gets_one_of_its_own(told: Told) -> None:
    told.counter.takes, told.counter.slow_to_end = 0.05, 1.0
    told.order("a")
    await asyncio.sleep(0.05)
    told.counting.order(("team", "a"), None)
    await settle()
    told.order("a")
    await asyncio.sleep(2.0)

    (_, (again, *_), *_) = told.counter.reads
    assert (told.counter.left, told.counter.open) == ([HERE], {HERE})
    assert told.counter.closed_at < again
    assert told.tasks("a") == 0
    await told.counting.stop()


async def test_who_leads_no_more_asks_nobody_and_begins_anew_when_it_leads_again(told: Told) -> None:
    told.set("a", 5)
    told.order("a", "b")
    await asyncio.sleep(1.0)
    told.counting.pause()
    asked = len(told.counter.reads)
    await asyncio.sleep(60)
    assert len(told.counter.reads) == asked
    assert (told.tasks("a"), told.counter.open) == (None, set())

    told.told.clear()
    told.order("a", "b")
    await asyncio.sleep(0.05)
    assert [name for _, name in told.told] == ["a", "b"]
    await told.counting.stop()


async def test_stopping_waits_for_no_answer(told: Told) -> None:
    told.counter.takes = 1e6
    told.order("a")
    await asyncio.sleep(1.0)
    began = elapsed()
    await told.counting.stop()

    assert elapsed() == began
    assert told.counter.open == set()


async def test_ordering_the_same_again_changes_nothing(told: Told) -> None:
    told.order("a")
    for _ in range(50):
        await asyncio.sleep(0.1)
        told.order("a")

    assert len(told.told) == 1
    assert set(told.counter.asked()) == {0.1}
    await told.counting.stop()


async def test_a_pool_that_joins_a_server_that_is_rarely_asked_is_counted_at_once(told: Told) -> None:
    told.order("a", place=SLOW)
    await asyncio.sleep(5.0)
    told.order("b", place=SLOW)
    await asyncio.sleep(0.1)

    assert told.tasks("b") == 0
    assert told.counter.asked() == [5.0]
    await told.counting.stop()


def test_neither_url_nor_token_is_in_the_words_of_a_place() -> None:
    assert repr(Place("redis://:hunter2@here", 0.1, "s3cret")) == "Place(interval_seconds=0.1)"
