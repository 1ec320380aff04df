"""A new leader without reports: the status keeps the former leader's numbers until workers report."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.core import status
from activity_operator.core.decide import decide
from activity_operator.core.decision import ScalingMemory
from activity_operator.core.observation import Observation, PodFacts, SourceFacts
from tests.unit.activity_operator.core.builders import NOW, busy, counted, observed, pod, pool, worker

PODS = [pod(f"w{n}") for n in range(1, 5)]
BEFORE = {"busyWorkers": 3, "desiredReplicas": 4, "replicas": 4}
REPORTS = [busy(f"w{n}") for n in (1, 2, 3)]
YOUNG_TERM = "this replica has led for less than 5 s"


def status_of(observation: Observation, before: dict[str, Any]) -> dict[str, Any]:
    spec = pool()
    return status.pool_status(spec, observation, decide(spec, observation, ScalingMemory()), before, ())


def condition(written: dict[str, Any], kind: str) -> str:
    return next(str(found["status"]) for found in written["conditions"] if found["type"] == kind)


@pytest.mark.parametrize(("problem", "since"), [(YOUNG_TERM, NOW - 1), ("", NOW - 600)], ids=["at once", "long after"])
def test_pool_without_reports_keeps_its_former_busy_count(problem: str, since: float) -> None:
    written = status_of(observed(*PODS, leader_since=since, report_path_problem=problem), BEFORE)

    assert written["busyWorkers"] == 3
    assert written["desiredReplicas"] == 4
    assert condition(written, "Active") == "True"


def test_reports_to_a_new_leader_lower_the_busy_count() -> None:
    idle = [worker(f"w{n}") for n in (1, 2, 3)]

    assert status_of(observed(*PODS, *idle, leader_since=NOW - 600), BEFORE)["busyWorkers"] == 1
    assert status_of(observed(*PODS, *idle, busy("w4"), leader_since=NOW - 600), BEFORE)["busyWorkers"] == 1
    assert status_of(observed(*PODS, *idle, worker("w4"), leader_since=NOW - 600), BEFORE)["busyWorkers"] == 0


def test_signals_are_stale_only_in_an_older_term_with_pods() -> None:
    def stale(*pods: PodFacts, since: float) -> str:
        observation = observed(*pods, leader_since=since, report_path_problem=YOUNG_TERM)
        return condition(status_of(observation, BEFORE), "SignalsStale")

    assert stale(*PODS, since=NOW - 29) == "False"
    assert stale(*PODS, since=NOW - 30) == "True"
    assert stale(since=NOW - 30) == "False"


@pytest.mark.parametrize("problem", [False, True])
def test_new_leader_leaves_conditions_about_reports_as_they_were(problem: bool) -> None:
    """Otherwise each change of leader costs two writes of every pool's status."""
    silent = worker("w4", reported_at=NOW - 90 if problem else NOW)
    waiting = SourceFacts(counts=counted(2))
    path = "most workers stopped reporting" if problem else ""
    former = observed(*PODS, *REPORTS, silent, leader_since=NOW - 600, report_path_problem=path, source=waiting)
    before = status_of(former, BEFORE)
    young = replace(former, workers=(), leader_since=NOW - 5, report_path_problem=YOUNG_TERM)
    after = status_of(young, before)

    for kind in ("SignalsStale", "ScalingLimited"):
        assert condition(before, kind) == str(problem)
        assert condition(after, kind) == str(problem)


@pytest.mark.parametrize("since", [NOW - 1, NOW - 600], ids=["a young term", "a report path that failed"])
def test_pool_with_degraded_report_path_is_checked_again_soon(since: float) -> None:
    """No event marks the end of the degradation; without a look the status would stay wrong for another minute."""
    workers = [worker(f"w{n}") for n in range(1, 5)]
    degraded = decide(
        pool(), observed(*PODS, *workers, leader_since=since, report_path_problem=YOUNG_TERM), ScalingMemory()
    )
    empty = decide(pool(), observed(leader_since=since, report_path_problem=YOUNG_TERM), ScalingMemory())

    assert degraded.look_again_in is not None
    assert degraded.look_again_in <= 5.0
    assert empty.look_again_in is None
