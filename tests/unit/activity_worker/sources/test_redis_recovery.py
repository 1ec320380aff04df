"""When a worker looks for the jobs of dead workers, and what it says if it cannot."""

import asyncio
from typing import Any

import pytest

from activity_worker.sources.redis_job import RedisQueue
from activity_worker.sources.redis_recovery import QueueRecovery
from activity_worker.wire.redis_errors import RedisError, refusal, unreachable
from tests.unit.activity_worker.flows.fake_server import FakeServer

OURS: list[list[str]] = [[], []]
ANOTHERS = None


class TimedRecovery:
    """A recovery over a server that gives `answer`, and the times of its looks in seconds."""

    def __init__(self, answer: Any, jitter: float = 0.0) -> None:
        self.answer = answer
        self.looks: list[float] = []
        self.server = FakeServer(self._reply)
        self.recovery = QueueRecovery(self.server, RedisQueue("shop", "pack"), jitter=lambda: jitter)

    def _reply(self, *command: Any) -> Any:
        if command[2] == 4:
            self.looks.append(round(asyncio.get_running_loop().time() - self.began, 3))
            if isinstance(self.answer, RedisError):
                raise self.answer
            return self.answer
        return 1

    async def run(self, seconds: float) -> None:
        self.began = asyncio.get_running_loop().time()
        self.recovery.begin()
        self.recovery.begin()
        await asyncio.sleep(seconds)
        await self.recovery.stop()


@pytest.mark.parametrize(
    ("answer", "looks"),
    [
        (OURS, [0, 5, 10, 15, 20]),
        (ANOTHERS, [0, 20, 40]),
        (unreachable("ConnectionLost", "away"), [0, 5, 15, 35, 75, 135]),
    ],
    ids=["its turn", "another's turn", "the server is away"],
)
async def test_worker_looks_every_5_seconds_in_its_turn(answer: Any, looks: list[float]) -> None:
    timed = TimedRecovery(answer)
    await timed.run(seconds=looks[-1] + 1)

    assert timed.looks == looks


async def test_looks_of_workers_that_start_together_spread_out() -> None:
    timed = TimedRecovery(ANOTHERS, jitter=0.5)
    await timed.run(seconds=50)

    assert timed.looks == [2.5, 25.5, 48.5]


async def test_worker_leaves_its_turn_when_it_ends() -> None:
    timed = TimedRecovery(OURS)
    await timed.run(seconds=1)

    assert timed.server.commands[-1][2:4] == (1, "queue:pack:recovery:turn")
    await timed.recovery.stop()


async def test_worker_without_the_turn_leaves_nothing_behind() -> None:
    timed = TimedRecovery(ANOTHERS)
    await timed.run(seconds=1)

    assert len(timed.server.commands) == len(timed.looks) == 1


@pytest.mark.parametrize(
    ("error", "warns"),
    [
        (refusal("NOPERM this user has no permissions to run the 'eval' command"), True),
        (refusal("ERR unknown command"), True),
        (unreachable("ConnectionLost", "away"), False),
        (refusal("WRONGPASS no"), False),
    ],
    ids=["no right", "no scripts", "away", "password"],
)
async def test_refusal_is_logged_once_and_an_outage_is_not(
    error: RedisError, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    timed = TimedRecovery(error)
    await timed.run(seconds=200)

    assert len(timed.looks) > 3
    assert caplog.text.count("the jobs of dead workers of queue pack are not put back") == int(warns)


async def test_put_back_jobs_are_logged_with_their_ids(caplog: pytest.LogCaptureFixture) -> None:
    timed = TimedRecovery([["j1"], ["j2"]])
    await timed.run(seconds=1)

    said = [(record.getMessage(), record.__dict__["facts"]["job"]) for record in caplog.records]
    assert said == [
        ("the lock of a dead worker's job ran out: it waits again", "j1"),
        ("the lock of a dead worker's job ran out: it failed", "j2"),
    ]
