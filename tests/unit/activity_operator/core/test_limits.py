"""The limit that binds: a pause beats a pin, a pin beats autoscaling, and maxWorkers always holds."""

from typing import Any

import pytest

from activity_operator.core.decision import Breaker, Limit, Size
from activity_operator.core.demand import Demand
from activity_operator.core.limits import limited_size
from activity_operator.core.observation import Observation
from activity_operator.core.situation import situation_of
from activity_operator.core.stabilize import Stable
from tests.unit.activity_operator.core.builders import NOW, observed, pending, pool, worker

OPEN = Breaker(1, NOW, "ImagePullFailed", "pod n1: ImagePullBackOff")


def sized(
    workers: int,
    observation: Observation | None = None,
    *,
    breaker: Breaker | None = None,
    held_by: str = "",
    **spec: Any,
) -> Size:
    observation = observation or observed(worker("w1"), worker("w2"))
    stable = Stable(workers, held_by, (), None)
    return limited_size(
        situation_of(pool(**spec), observation), Demand(workers, 0, "the work"), stable, breaker or Breaker()
    )


@pytest.mark.parametrize(
    ("workers", "spec", "desired", "limit"),
    [
        (4, {}, 4, "demand"),
        (0, {}, 0, "demand"),
        (0, {"minWorkers": 3}, 3, "min"),
        (99, {}, 10, "max"),
        (99, {"minWorkers": 3}, 10, "max"),
        (4, {"replicas": 7}, 7, "pin"),
        (4, {"replicas": 0}, 0, "pin"),
        (4, {"replicas": 99}, 10, "max"),
        (4, {"paused": True}, 0, "paused"),
        (4, {"paused": True, "replicas": 7}, 0, "paused"),
        (4, {"paused": True, "minWorkers": 3}, 0, "paused"),
    ],
)
def test_pause_beats_pin_beats_autoscaling_and_max_always_holds(
    workers: int, spec: dict[str, Any], desired: int, limit: str
) -> None:
    answer = sized(workers, **spec)

    assert (answer.desired, answer.limit) == (desired, limit)


def test_degraded_report_path_stops_growth() -> None:
    silent = [worker(name, reported_at=NOW - 90) for name in ("w1", "w2", "w3")]
    reporting = worker("w4", busy=1)

    answer = sized(5, observed(*silent, reporting, report_path_problem="reports failed together"))
    assert (answer.desired, answer.limit, answer.reason) == (4, "doubt", "growth stopped: reports failed together")
    assert sized(5, observed(*silent, reporting)).desired == 5
    assert sized(5, observed(reporting, report_path_problem="reports failed together")).desired == 5
    assert (
        sized(5, observed(*silent, reporting, report_path_problem="reports failed together"), minWorkers=6).desired == 6
    )


def test_reason_names_what_holds_the_size() -> None:
    answer = sized(4, held_by="the stabilization window")

    assert (answer.limit, answer.reason) == ("held", "the work; kept at 4 by the stabilization window")


def test_reason_at_max_workers_names_the_size_that_tasks_need() -> None:
    assert sized(99).reason == "the work would need 99 workers; maxWorkers is 10"


def test_open_breaker_stops_growth_and_says_why() -> None:
    answer = sized(9, breaker=OPEN)

    assert (answer.desired, answer.limit) == (2, "breaker")
    assert answer.reason == "growth stopped: pod n1: ImagePullBackOff"


@pytest.mark.parametrize(
    ("observation", "workers", "desired"),
    [
        (observed(), 9, 1),
        (observed(pending("n1"), pending("n2"), pending("n3")), 9, 3),
        (observed(worker("w1"), worker("w2", reported_at=NOW - 90)), 9, 2),
        (observed(worker("w1"), worker("w2")), 1, 1),
    ],
    ids=["one retry pod", "starting pods stay", "a stalled worker counts", "shrinking goes on"],
)
def test_open_breaker_keeps_present_pods(observation: Observation, workers: int, desired: int) -> None:
    assert sized(workers, observation, breaker=OPEN).desired == desired


def test_open_breaker_also_holds_min_workers_back() -> None:
    assert sized(0, breaker=OPEN, minWorkers=5).desired == 2


def test_refused_pool_keeps_its_workers_and_does_not_grow() -> None:
    refused = observed(worker("w1"), worker("w2"), refusal="not allowed in this namespace")

    answer = sized(9, refused, minWorkers=5)
    assert answer == Size(2, Limit.REFUSED, "not allowed in this namespace")
    assert sized(9, refused, maxWorkers=1).desired == 1
