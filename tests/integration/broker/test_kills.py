"""A small run with kills on both stores; `python -m tests.endurance broker` is the long one."""

from pathlib import Path

import pytest

from activity_worker.taskbroker.lifecycle.inflight import FailureReason
from activity_worker.taskbroker.lifecycle.upkeep import DeadLetter
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState
from tests.integration.broker.kills import Run, run
from tests.integration.broker.kills_judge import judge
from tests.unit.activity_worker.taskbroker.activations import activation_bytes

TASKS = 200


@pytest.mark.timeout(400)
async def test_nothing_is_lost_whatever_dies(url: str, tmp_path: Path) -> None:
    brokers = 1 if url.startswith("sqlite") else 2
    found = await run(Run(url, tmp_path, TASKS, brokers=brokers, kills=6, seconds=300.0))
    assert found.wrong == []
    assert found.letters["expired"] == TASKS // 50
    assert sum(found.kills.values()) > 0


def letter(reason: str, *, task_id: str = "a", tried: int = 2, given_out: int = 1) -> DeadLetter:
    retry = RetryState(tried, 3, OnAttemptsExceeded.DEADLETTER)
    data = activation_bytes(task_id, retry=retry, headers={"n": "2"})
    return DeadLetter(task_id, "kills", "", "play", data, FailureReason(reason), tried + given_out, 0.0, 0.0)


GOOD = ["begin 2 a ok 7", "end 2 a ok 7"]
RETRIED = ["begin 2 a fail 7", "begin 2 b fail 7"]


@pytest.mark.parametrize(
    ("log", "letters", "wrong"),
    [
        (GOOD, [], ""),
        ([], [], "it was lost"),
        (["begin 2 a die 7"], [], "it was lost"),
        (["begin 2 a die 7", *GOOD], [], ""),
        ([*RETRIED, "begin 2 c ok 7", "end 2 c ok 7"], [], ""),
        ([*RETRIED, "begin 2 c fail 7", "begin 2 d ok 7", "end 2 d ok 7"], [], "more than 3 attempts"),
        ([*GOOD, "begin 2 b ok 7", "end 2 b ok 7"], [], "a retry was consumed by a"),
        ([*RETRIED, "begin 2 c fail 7"], [letter("reported", task_id="c")], ""),
        ([*RETRIED, "begin 2 c fail 7"], [letter("reported", task_id="c")] * 2, "more than one dead letter"),
        (["begin 2 a fail 7"], [letter("reported", tried=0)], "failed for good with 1 attempts of 3"),
        (GOOD, [letter("reported")], "no run of it failed"),
        (["begin 2 a die 7"] * 5, [letter("deadline", given_out=5)], ""),
        (["begin 2 a die 7"] * 6, [letter("deadline", given_out=5)], "given out more than 5 times"),
        (["begin 2 a die 7"] * 4, [letter("deadline", given_out=4)], "its deadlines passed 4 times"),
    ],
)
def test_judge_sees_what_is_wrong(log: list[str], letters: list[DeadLetter], wrong: str) -> None:
    # Tasks 0 and 1 are at most once, and expired: they are judged in the next test.
    found = [words for words in judge(3, log, letters, 5) if words.startswith("task 2:")]
    assert bool(found) == bool(wrong), found
    assert wrong in "".join(found)


@pytest.mark.parametrize(
    ("log", "wrong"),
    [
        (["begin 0 a ok 7", "end 0 a ok 7"], ""),
        (["begin 0 a ok 7", "end 0 a ok 7", "begin 0 a ok 7"], "at most once"),
        (["begin 1 a ok 7"], "expired"),
    ],
)
def test_judge_sees_a_second_run(log: list[str], wrong: str) -> None:
    number = int(log[0].split()[1])
    found = [words for words in judge(2, log, [], 5) if words.startswith(f"task {number}:")]
    assert bool(found) == bool(wrong), found
    assert wrong in "".join(found)
