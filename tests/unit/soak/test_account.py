"""Whose fault it is that an attempt timed out, or that a task ran twice."""

import base64
import json

import pytest

from tests.soak.account import (
    Attempt,
    Begun,
    Claim,
    Death,
    Evidence,
    duplicates,
    granted_late,
    owner_in,
    timed_out,
)

HOLD = 2.0
WORKER, REPLICA = "zero-abc", "operator-a"


def attempt(by: str = f"{WORKER}:xyz", at: float = 100.0, state: str = "timed_out") -> Attempt:
    return Attempt("lease", state, by, at, at + 30.0)


def evidence(
    *deaths: Death,
    begun: tuple[Begun, ...] = (),
    recorded: bool = False,
    swallowed: bool = False,
    ended: float | None = None,
) -> Evidence:
    return Evidence(
        deaths,
        begun,
        frozenset({"lease"}) if recorded else frozenset(),
        {"lease": "AWS answers lost"} if swallowed else {},
        {} if ended is None else {"a#0": ended},
        HOLD,
    )


def killed(name: str, at: float, *held: str) -> Death:
    return Death(name, at, "killed", frozenset(held))


def test_a_task_that_timed_out_without_any_fault_is_lost() -> None:
    lost, excused = timed_out([attempt()], evidence())

    assert ([one.lease for one in lost], excused) == (["lease"], {})


def test_an_attempt_that_ended_otherwise_is_not_asked_about() -> None:
    assert timed_out([attempt(state="succeeded"), attempt(state="failed")], evidence()) == ([], {})


def test_a_task_that_a_killed_worker_had_is_the_fault_s() -> None:
    assert timed_out([attempt()], evidence(killed(WORKER, 110.0, "lease"))) == ([], {"lease": "killed"})


@pytest.mark.parametrize(
    ("pod", "died_at", "mine"), [("uid-1", 120.0, True), ("uid-1", 160.0, False), ("uid-2", 120.0, False)]
)
def test_killed_owner_of_a_lease_is_the_holder_until_its_grant(pod: str, died_at: float, mine: bool) -> None:
    assert granted_late([Claim("lease", "uid-1", 100.0)], pod, died_at) == (
        frozenset({"lease"}) if mine else frozenset()
    )


def test_owner_is_read_from_the_record_of_a_lease() -> None:
    owner = base64.b64encode(json.dumps({"podUid": "uid-1", "incarnation": "x"}).encode()).decode()

    assert owner_in({"data": {"owner": owner, "token": "dG9rZW4="}}) == "uid-1"
    assert owner_in({"data": {"token": "dG9rZW4="}}) == ""
    assert owner_in({"kind": "Status"}) == ""


def test_a_task_whose_answer_a_fault_swallowed_is_the_fault_s() -> None:
    assert timed_out([attempt()], evidence(swallowed=True)) == ([], {"lease": "AWS answers lost"})


@pytest.mark.parametrize(
    ("by", "died_at", "mine"),
    [
        (f"{WORKER}:xyz", 98.5, True),  # its poll was open when it was killed
        (f"{WORKER}:xyz", 95.0, False),  # a poll of its successor's in the same pod
        (f"{WORKER}:xyz", 100.5, True),  # the answer was still on the way
        (f"{WORKER}:xyz", 110.0, False),  # it had the task for ten seconds, and a death would have told
        ("another:xyz", 100.0, False),
        (f"activitypool-operator/{REPLICA}", 100.0, False),  # a worker's death is not an operator's
    ],
)
def test_task_in_the_open_poll_of_a_killed_worker_is_no_loss(by: str, died_at: float, mine: bool) -> None:
    lost, _ = timed_out([attempt(by)], evidence(killed(WORKER, died_at)))

    assert bool(lost) is not mine


@pytest.mark.parametrize(("died_at", "mine"), [(98.0, True), (103.0, True), (120.0, False)])
def test_task_of_an_operator_killed_before_its_record_is_no_loss(died_at: float, mine: bool) -> None:
    lost, _ = timed_out([attempt(f"activitypool-operator/{REPLICA}")], evidence(killed(REPLICA, died_at)))

    assert bool(lost) is not mine


@pytest.mark.parametrize("so", [{"recorded": True}, {"begun": (Begun("lease", "elsewhere#0", 104.0),)}])
def test_recorded_task_that_times_out_is_lost_even_if_its_operator_died(so: dict[str, object]) -> None:
    seen = evidence(killed(REPLICA, 101.0), **so)  # type: ignore[arg-type]
    lost, _ = timed_out([attempt(f"activitypool-operator/{REPLICA}")], seen)

    assert lost


def test_a_task_that_runs_twice_is_a_duplicate() -> None:
    begun = (Begun("lease", "a#0", 1.0), Begun("lease", "b#0", 5.0), Begun("other", "a#0", 6.0))

    assert duplicates(evidence(begun=begun)) == [begun[1]]


def test_a_task_that_runs_again_after_its_worker_was_killed_is_none() -> None:
    begun = (Begun("lease", "a#0", 1.0), Begun("lease", "b#0", 5.0))

    assert not duplicates(evidence(begun=begun, ended=3.0))
    assert duplicates(evidence(begun=begun, ended=7.0)), "it was killed only after the other had begun"
