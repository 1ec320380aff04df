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


class Scene:
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
def scene() -> Scene:
    return Scene()


async def test_pools_that_join_together_are_read_together(scene: Scene) -> None:
    scene.join("a", "b")
    await asyncio.sleep(0.5)
    scene.join("c")
    await asyncio.sleep(1.0)

    assert scene.reader.reads == [(1.0, "here", ["a", "b", "c"])]
    await scene.rounds.stop()


async def test_pool_that_joins_a_resting_round_does_not_wait_for_its_interval(scene: Scene) -> None:
    scene.join("a")
    await asyncio.sleep(3.0)
    scene.join("b")
    await asyncio.sleep(1.5)

    assert [at for at, *_ in scene.reader.reads] == [1.0, 4.0]
    await scene.rounds.stop()


async def test_pool_that_moves_leaves_its_former_place(scene: Scene) -> None:
    scene.join("a")
    await asyncio.sleep(2.0)
    scene.join("a", place="there")
    await asyncio.sleep(2.0)

    assert [place for _, place, _ in scene.reader.reads] == ["here", "there"]
    assert [place for _, place in scene.reader.closed] == ["here"]
    await scene.rounds.stop()
    assert [place for _, place in scene.reader.closed] == ["here", "there"]


async def test_last_pool_that_leaves_ends_the_round_and_closes_the_place(scene: Scene) -> None:
    scene.join("a", "b")
    await asyncio.sleep(2.0)
    scene.rounds.leave(_key("a"))
    await asyncio.sleep(20.0)
    assert (scene.reader.reads[-1][2], scene.reader.closed) == (["b"], [])

    scene.rounds.leave(_key("b"))
    reads = len(scene.reader.reads)
    await asyncio.sleep(300.0)
    assert (len(scene.reader.reads), [place for _, place in scene.reader.closed]) == (reads, ["here"])


async def test_pool_that_returns_waits_until_its_former_place_is_closed(scene: Scene) -> None:
    scene.reader.takes, scene.reader.slow_to_end = 5.0, 3.0
    scene.join("a")
    await asyncio.sleep(2.0)
    scene.rounds.leave(_key("a"))
    await settle()
    scene.join("a")
    await asyncio.sleep(6.0)

    ((closed_at, _),) = scene.reader.closed
    assert closed_at == 5.0
    assert [at for at, *_ in scene.reader.reads] == [1.0, 6.0]
    await scene.rounds.stop()


async def test_pool_that_leaves_during_a_read_is_not_notified(scene: Scene) -> None:
    scene.reader.takes, scene.reader.fails = 5.0, DENIED
    scene.join("a", "b")
    await asyncio.sleep(3.0)
    scene.rounds.leave(_key("a"))
    await asyncio.sleep(5.0)

    assert scene.changed == ["b"]
    assert scene.rounds.find(_key("a")) is None
    await scene.rounds.stop()


async def test_pool_that_is_read_for_something_else_forgets_its_problem(scene: Scene) -> None:
    scene.reader.fails = DENIED
    scene.join("a")
    await asyncio.sleep(2.0)
    assert scene.error("a") == "AccessDenied"
    scene.join("a")

    assert scene.error("a") == ""
    await scene.rounds.stop()


async def test_stop_does_not_wait_for_an_answer(scene: Scene) -> None:
    scene.reader.takes = 1e6
    scene.join("a")
    scene.join("b", place="there")
    await asyncio.sleep(2.0)
    began = elapsed()
    await scene.rounds.stop()

    assert elapsed() == began
    assert {place for _, place in scene.reader.closed} == {"here", "there"}


async def test_failed_reads_back_off_up_to_the_cap_until_one_succeeds(scene: Scene) -> None:
    scene.reader.fails = DOWN
    scene.join("a")
    await asyncio.sleep(45.0)
    assert scene.gaps() == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]

    scene.reader.fails = None
    await asyncio.sleep(40.0)
    scene.reader.fails = DOWN
    await asyncio.sleep(12.0)
    assert 1.0 in scene.gaps()[8:], "the back-off starts again after a success"
    await scene.rounds.stop()


@pytest.mark.parametrize(
    ("problem", "shown_after"), [(DENIED, 1), (DOWN, 3), (BUSY, 4)], ids=["denied", "no answer", "throttled"]
)
async def test_problem_is_shown_once_it_has_lasted(scene: Scene, problem: SourceProblemError, shown_after: int) -> None:
    scene.reader.fails = problem
    scene.join("a")
    await asyncio.sleep(300.0)

    assert scene.changed == ["a"], "a problem that stays is notified once"
    assert scene.error("a") == problem.reason
    assert scene.reads_at_change == [shown_after]
    await scene.rounds.stop()


async def test_round_backs_off_if_every_pool_has_a_problem_of_its_own(scene: Scene) -> None:
    scene.reader.every_pool_fails = True
    scene.join("a")
    await asyncio.sleep(9.0)

    assert scene.gaps() == [1.0, 2.0, 4.0]
    assert scene.changed == []
    await scene.rounds.stop()


async def test_unexpected_error_becomes_a_problem_and_ends_no_round(scene: Scene) -> None:
    scene.reader.fails = ZeroDivisionError("a secret")
    scene.join("a")
    await asyncio.sleep(20.0)
    found = scene.rounds.find(_key("a"))

    assert found is not None
    assert found[1].error is not None
    assert found[1].error.message == "reading the backlog failed: ZeroDivisionError"
    await scene.rounds.stop()
