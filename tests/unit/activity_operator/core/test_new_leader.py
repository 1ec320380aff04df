"""A new leader has heard nobody yet: what the pool's status said stays, until somebody says otherwise."""

from typing import Any

import pytest

from activity_operator.core import report
from activity_operator.core.decide import decide
from activity_operator.core.decision import ScalingMemory
from activity_operator.core.observation import Observation
from tests.unit.activity_operator.core.builders import NOW, busy, pod, pool, seen, worker

CREW = [pod(f"w{n}") for n in range(1, 5)]
BEFORE = {"busyWorkers": 3, "desiredReplicas": 4, "replicas": 4}
DOUBT = "this replica has led for less than 5 s"


def said(situation: Observation, before: dict[str, Any]) -> dict[str, Any]:
    spec = pool()
    return report.status(spec, situation, decide(spec, situation, ScalingMemory()), before, ())


def condition(status: dict[str, Any], kind: str) -> str:
    return next(str(found["status"]) for found in status["conditions"] if found["type"] == kind)


@pytest.mark.parametrize(("suspect", "since"), [(DOUBT, NOW - 1), ("", NOW - 600)], ids=["at once", "long after"])
def test_until_its_workers_report_a_pool_is_as_busy_as_it_was(suspect: str, since: float) -> None:
    status = said(seen(*CREW, leader_since=since, suspect=suspect), BEFORE)

    assert status["busyWorkers"] == 3
    assert status["desiredReplicas"] == 4
    assert condition(status, "Active") == "True"


def test_what_workers_report_to_a_new_leader_counts() -> None:
    idle = [worker(f"w{n}") for n in (1, 2, 3)]

    assert said(seen(*CREW, *idle, leader_since=NOW - 600), BEFORE)["busyWorkers"] == 1
    assert said(seen(*CREW, *idle, busy("w4"), leader_since=NOW - 600), BEFORE)["busyWorkers"] == 1
    assert said(seen(*CREW, *idle, worker("w4"), leader_since=NOW - 600), BEFORE)["busyWorkers"] == 0


def test_only_a_pool_with_workers_has_signals_that_a_new_leader_may_miss() -> None:
    assert condition(said(seen(*CREW, leader_since=NOW - 1, suspect=DOUBT), BEFORE), "SignalsStale") == "True"
    assert condition(said(seen(leader_since=NOW - 1, suspect=DOUBT), {}), "SignalsStale") == "False"


@pytest.mark.parametrize("since", [NOW - 1, NOW - 600], ids=["a young term", "a report path that failed"])
def test_a_pool_whose_reports_are_doubted_is_looked_at_again_soon(since: float) -> None:
    """Nothing tells when the doubt ends: without another look the pool would be called unheard for a minute more."""
    workers = [worker(f"w{n}") for n in range(1, 5)]
    doubted = decide(pool(), seen(*CREW, *workers, leader_since=since, suspect=DOUBT), ScalingMemory())
    empty = decide(pool(), seen(leader_since=since, suspect=DOUBT), ScalingMemory())

    assert doubted.look_again_in is not None
    assert doubted.look_again_in <= 5.0
    assert empty.look_again_in is None
