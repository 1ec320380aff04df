"""A run is judged by everything that was found, and each thing that must not be is said."""

from dataclasses import replace

import pytest

from tests.soak.account import Attempt, Begun, Death, Evidence
from tests.soak.draw import DrawnFault, FaultKind
from tests.soak.growth import Growth
from tests.soak.verdict import CONVERGE_SECONDS, Findings, InjectedFault, judge, operators_deaths


def struck(what: FaultKind = FaultKind.LEADER_KILLED, at: float = 10.0, converged: float | None = 3.0) -> InjectedFault:
    one = InjectedFault(
        DrawnFault(what, 1.0, 0.0, 1, 0.5), at, "operator-a", in_flight=7, over=at + 1.0, converged=converged
    )
    one.missing = "status of zero"
    return one


FLAT = Growth("operator-a", 1, "rss", 1.0, 2.0, 0.0, 600.0)
SEEN = Evidence((), (), frozenset(), {}, {}, 2.0)
GOOD = Findings(
    struck=[struck(), struck(FaultKind.WORKER_KILLED, 50.0, 9.0)],
    statuses={"SUCCEEDED": 5},
    attempts=[Attempt("a" * 16, "succeeded", "w:x", 1.0, 2.0)],
    seen=SEEN,
    interrupted=[],
    growth=[FLAT],
    quiet_writes_a_minute=0.0,
    quiet_writes={},
)
TIMED_OUT = Attempt("b" * 16, "timed_out", "w:x", 51.0, 81.0)


def test_a_run_in_which_everything_ended_well_is_good() -> None:
    verdict = judge(GOOD)

    assert not verdict.wrong
    assert verdict.rows[FaultKind.LEADER_KILLED].times == 1
    assert verdict.rows[FaultKind.WORKER_KILLED].slowest == 9.0


BAD = {
    "a lost task": (replace(GOOD, attempts=[TIMED_OUT]), "timed out"),
    "an unfinished execution": (replace(GOOD, statuses={"SUCCEEDED": 5, "RUNNING": 1}), "1 executions ended RUNNING"),
    "a failed execution": (replace(GOOD, statuses={"FAILED": 2}), "2 executions ended FAILED"),
    "an interruption": (replace(GOOD, interrupted=[(52.0, "pod p was deleted with 1 tasks")]), "was deleted"),
    "a duplicate": (
        replace(GOOD, seen=replace(SEEN, begun=(Begun("c", "a#0", 1.0), Begun("c", "b#0", 2.0)))),
        "run again by b#0",
    ),
    "a slow recovery": (
        replace(GOOD, struck=[struck(converged=CONVERGE_SECONDS + 1)]),
        "converged after 61 s (status of zero)",
    ),
    "no recovery": (replace(GOOD, struck=[struck(converged=None)]), "not converged (status of zero)"),
    "growth": (replace(GOOD, growth=[replace(FLAT, wrong="rss grew")]), "rss grew"),
    "nothing to judge growth by": (replace(GOOD, growth=[]), "no operator's process lived long enough"),
    "writes at rest": (
        replace(GOOD, quiet_writes_a_minute=9.0, quiet_writes={"PATCH activitypools/status": 9}),
        "9.0 writes a minute at rest",
    ),
    "trouble of the test's own": (replace(GOOD, troubles=["the node is deaf"]), "deaf"),
}


@pytest.mark.parametrize(("found", "words"), BAD.values(), ids=BAD.keys())
def test_each_thing_that_must_not_be_makes_a_run_bad_and_is_said(found: Findings, words: str) -> None:
    wrong = judge(found).wrong

    assert len(wrong) == 1
    assert words in wrong[0]


def test_task_of_a_killed_holder_counts_as_retried_for_that_fault() -> None:
    dead = Death("w", 52.0, FaultKind.WORKER_KILLED, frozenset({TIMED_OUT.lease}))
    verdict = judge(replace(GOOD, attempts=[TIMED_OUT], seen=replace(SEEN, deaths=(dead,))))

    assert not verdict.wrong
    assert verdict.rows[FaultKind.WORKER_KILLED].retried == 1


def test_harm_stands_in_the_row_of_the_fault_before_it() -> None:
    rows = judge(replace(GOOD, attempts=[TIMED_OUT], interrupted=[(12.0, "pod p was deleted")])).rows

    assert (rows[FaultKind.WORKER_KILLED].lost, rows[FaultKind.LEADER_KILLED].interrupted) == (1, 1)


def test_an_operator_that_ended_by_itself_has_no_excuse() -> None:
    ends = {"operator-a": [10.2, 300.0], "operator-b": [10.3]}

    assert operators_deaths(GOOD.struck, ends, 7.0) == [Death("operator-a", 10.2, FaultKind.LEADER_KILLED)]
