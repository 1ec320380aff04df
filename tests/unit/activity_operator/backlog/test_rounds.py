"""The scheduler of backlog rounds: who is read together and when, how rounds end, and what failures do."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from activity_operator.backlog.failures import RetryPolicy
from activity_operator.backlog.protocol import Key, SourceProblemError
from activity_operator.backlog.rounds import RoundPool, RoundReader, Rounds
from tests.unit.activity_operator.virtual_time import elapsed, settle, wall

DENIED = SourceProblemError("AccessDenied", "allow it")
DOWN = SourceProblemError("BackendUnreachable", "no answer")
BUSY = SourceProblemError("Throttled", "slower", throttled=True)
RETRY = RetryPolicy(
    1.0, 8.0, unreachable_shown=3, throttled_first_seconds=2.0, throttled_cap_seconds=16.0, throttled_shown=4
)


class Reader(RoundReader[str, RoundPool]):
    """Reads in `takes` seconds every `every` seconds; `fails` is raised by each read."""

    def __init__(self) -> None:
        self.takes, self.every, self.slow_to_end = 0.0, 10.0, 0.0
        self.fails: Exception | None = None
        self.every_pool_fails = False
        self.reads: list[tuple[float, str, list[str]]] = []
        self.closed: list[tuple[float, str]] = []

    async def read(self, place: str, pools: Sequence[RoundPool]) -> bool:
        self.reads.append((round(elapsed(), 2), place, [name for _, name in (pool.key for pool in pools)]))
        try:
            await asyncio.sleep(self.takes)
        except asyncio.CancelledError:
            await asyncio.sleep(self.slow_to_end)
            raise
        if self.fails is not None:
            raise self.fails
        return not self.every_pool_fails

    def wait_seconds(self, place: str, pools: Sequence[RoundPool], took: float) -> float:
        return self.every - took

    async def close(self, place: str) -> None:
        self.closed.append((elapsed(), place))


class RecordedRounds:
    """Rounds over `Reader`, and the names of the pools whose change was notified."""

    def __init__(self) -> None:
        self.reader = Reader()
        self.changed: list[str] = []
        self.reads_at_change: list[int] = []
        self.rounds = Rounds[str, RoundPool](
            self.reader,
            gather_seconds=1.0,
            retry=RETRY,
            on_change=self._changed,
            now=wall,
            jitter=lambda: 1.0,
        )

    def _changed(self, pool: RoundPool) -> None:
        self.changed.append(pool.key[1])
        self.reads_at_change.append(len(self.reader.reads))

    def join(self, *names: str, place: str = "here") -> None:
        for name in names:
            self.rounds.join(place, RoundPool(_key(name)))

    def error(self, name: str) -> str:
        found = self.rounds.find(_key(name))
        return "" if found is None or found[1].error is None else found[1].error.reason

    def gaps(self) -> list[float]:
        """Return the seconds between consecutive reads."""
        return [round(later - sooner, 2) for (sooner, *_), (later, *_) in pairwise(self.reader.reads)]


def _key(name: str) -> Key:
    return "team", name


@pytest.fixture
def recorded() -> RecordedRounds:
    return RecordedRounds()


async def test_pools_that_join_together_are_read_together(recorded: RecordedRounds) -> None:
    recorded.join("a", "b")
    await asyncio.sleep(0.5)
    recorded.join("c")
    await asyncio.sleep(1.0)

    assert recorded.reader.reads == [(1.0, "here", ["a", "b", "c"])]
    await recorded.rounds.stop()


async def test_pool_that_joins_a_resting_round_does_not_wait_for_its_interval(recorded: RecordedRounds) -> None:
    recorded.join("a")
    await asyncio.sleep(3.0)
    recorded.join("b")
    await asyncio.sleep(1.5)

    assert [at for at, *_ in recorded.reader.reads] == [1.0, 4.0]
    await recorded.rounds.stop()


async def test_pool_that_moves_leaves_its_former_place(recorded: RecordedRounds) -> None:
    recorded.join("a")
    await asyncio.sleep(2.0)
    recorded.join("a", place="there")
    await asyncio.sleep(2.0)

    assert [place for _, place, _ in recorded.reader.reads] == ["here", "there"]
    assert [place for _, place in recorded.reader.closed] == ["here"]
    await recorded.rounds.stop()
    assert [place for _, place in recorded.reader.closed] == ["here", "there"]


async def test_last_pool_that_leaves_ends_the_round_and_closes_the_place(recorded: RecordedRounds) -> None:
    recorded.join("a", "b")
    await asyncio.sleep(2.0)
    recorded.rounds.leave(_key("a"))
    await asyncio.sleep(20.0)
    assert (recorded.reader.reads[-1][2], recorded.reader.closed) == (["b"], [])

    recorded.rounds.leave(_key("b"))
    reads = len(recorded.reader.reads)
    await asyncio.sleep(300.0)
    assert (len(recorded.reader.reads), [place for _, place in recorded.reader.closed]) == (reads, ["here"])


async def test_pool_that_returns_waits_until_its_former_place_is_closed(recorded: RecordedRounds) -> None:
    recorded.reader.takes, recorded.reader.slow_to_end = 5.0, 3.0
    recorded.join("a")
    await asyncio.sleep(2.0)
    recorded.rounds.leave(_key("a"))
    await settle()
    recorded.join("a")
    await asyncio.sleep(6.0)

    ((closed_at, _),) = recorded.reader.closed
    assert closed_at == 5.0
    assert [at for at, *_ in recorded.reader.reads] == [1.0, 6.0]
    await recorded.rounds.stop()


async def test_pool_that_leaves_during_a_read_is_not_notified(recorded: RecordedRounds) -> None:
    recorded.reader.takes, recorded.reader.fails = 5.0, DENIED
    recorded.join("a", "b")
    await asyncio.sleep(3.0)
    recorded.rounds.leave(_key("a"))
    await asyncio.sleep(5.0)

    assert recorded.changed == ["b"]
    assert recorded.rounds.find(_key("a")) is None
    await recorded.rounds.stop()


async def test_pool_that_is_read_for_something_else_forgets_its_problem(recorded: RecordedRounds) -> None:
    recorded.reader.fails = DENIED
    recorded.join("a")
    await asyncio.sleep(2.0)
    assert recorded.error("a") == "AccessDenied"
    recorded.join("a")

    assert recorded.error("a") == ""
    await recorded.rounds.stop()


async def test_stop_does_not_wait_for_an_answer(recorded: RecordedRounds) -> None:
    recorded.reader.takes = 1e6
    recorded.join("a")
    recorded.join("b", place="there")
    await asyncio.sleep(2.0)
    began = elapsed()
    await recorded.rounds.stop()

    assert elapsed() == began
    assert {place for _, place in recorded.reader.closed} == {"here", "there"}


async def test_failed_reads_back_off_up_to_the_cap_until_one_succeeds(recorded: RecordedRounds) -> None:
    recorded.reader.fails = DOWN
    recorded.join("a")
    await asyncio.sleep(45.0)
    assert recorded.gaps() == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]

    recorded.reader.fails = None
    await asyncio.sleep(40.0)
    recorded.reader.fails = DOWN
    await asyncio.sleep(12.0)
    assert 1.0 in recorded.gaps()[8:], "the back-off starts again after a success"
    await recorded.rounds.stop()


@pytest.mark.parametrize(
    ("problem", "shown_after"), [(DENIED, 1), (DOWN, 3), (BUSY, 4)], ids=["denied", "no answer", "throttled"]
)
async def test_problem_is_shown_once_it_has_lasted(
    recorded: RecordedRounds, problem: SourceProblemError, shown_after: int
) -> None:
    recorded.reader.fails = problem
    recorded.join("a")
    await asyncio.sleep(300.0)

    assert recorded.changed == ["a"], "a problem that stays is notified once"
    assert recorded.error("a") == problem.reason
    assert recorded.reads_at_change == [shown_after]
    await recorded.rounds.stop()


async def test_round_backs_off_if_every_pool_has_a_problem_of_its_own(recorded: RecordedRounds) -> None:
    recorded.reader.every_pool_fails = True
    recorded.join("a")
    await asyncio.sleep(9.0)

    assert recorded.gaps() == [1.0, 2.0, 4.0]
    assert recorded.changed == []
    await recorded.rounds.stop()


async def test_unexpected_error_becomes_a_problem_and_ends_no_round(recorded: RecordedRounds) -> None:
    recorded.reader.fails = ZeroDivisionError("a secret")
    recorded.join("a")
    await asyncio.sleep(20.0)
    found = recorded.rounds.find(_key("a"))

    assert found is not None
    assert found[1].error is not None
    assert found[1].error.message == "reading the backlog failed: ZeroDivisionError"
    await recorded.rounds.stop()
