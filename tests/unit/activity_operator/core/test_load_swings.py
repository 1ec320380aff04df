"""Bursts that follow each other within the window keep their workers between them."""

import math
from typing import Any

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.core.estimates import NO_ESTIMATES, Estimates
from activity_operator.core.load_swings import NO_SWINGS, LoadSwings, watched
from activity_operator.core.situation import situation_of
from activity_operator.core.windows import RETURN_WINDOWS
from tests.unit.activity_operator.core.builders import NOW, observed, pool
from tests.unit.activity_operator.core.load import KINDS, Load, turns
from tests.unit.activity_operator.core.pool_harness import PoolHarness, pool_spec

#: The window of pods that start in 3 s.
WINDOW = 24.0
REDIS = KINDS["counted"]


def spec(**down: Any) -> PoolSpec:
    return pool(activityArn=None, source=REDIS, scaling={"scaleDown": down})


def swings(*steps: tuple[float, int], known: Estimates = NO_ESTIMATES, past: LoadSwings = NO_SWINGS) -> LoadSwings:
    """Return the swings after these numbers of tasks, each with the seconds since the start."""
    for seconds, tasks in steps:
        past = watched(situation_of(spec(), observed(now=NOW + seconds), 3.0), tasks, known, past)
    return past


def test_burst_that_comes_again_within_the_window_has_returned() -> None:
    again = swings((0, 0), (1, 30), (14, 30), (15, 3), (16, 0), (26, 10), (27, 24))

    assert again == LoadSwings(24, NOW + 27, 24, returned=30, returned_at=NOW + 27)
    assert swings((28, 30), past=again) == LoadSwings(30, NOW + 28, 30, returned=30, returned_at=NOW + 27)


def test_burst_that_is_much_larger_has_not_come_again() -> None:
    again = swings((1, 30), (14, 30), (15, 0), (26, 30), (40, 30), (41, 0))

    assert swings((52, 40), past=again).returned_at == NOW + 52
    assert swings((53, 41), past=swings((52, 30), past=again)).returned_at == 0.0


@pytest.mark.parametrize(
    "steps",
    [
        ((1, 30), (14, 30), (15, 0), (39, 30)),
        ((1, 30), (14, 30), (15, 0), (26, 21)),
        ((1, 30), (14, 30), (15, 0), (17, 30)),
        ((1, 2), (14, 2), (15, 0), (26, 2)),
        ((1, 30), (14, 30), (15, 12), (26, 29)),
    ],
    ids=["after the window", "of fewer tasks", "missed by a report", "of two tasks", "within usual swings"],
)
def test_other_swings_are_no_return(steps: tuple[tuple[float, int], ...]) -> None:
    assert swings(*steps, known=Estimates(fast=25.0, short=25.0, long=25.0)).returned_at == 0.0


def test_window_does_not_fade_for_a_while_after_a_return() -> None:
    lasts = RETURN_WINDOWS * WINDOW

    def fades(seconds: float, **down: Any) -> bool:
        return situation_of(spec(**down), observed(now=NOW + seconds), 3.0, NOW).window_fades

    assert (fades(lasts - 1), fades(lasts)) == (False, True)
    assert not fades(lasts, stabilizationWindowSeconds=24)
    assert situation_of(spec(), observed(now=NOW), 3.0).window_fades


def bursts(times: int, pause_seconds: float) -> Load:
    """Return the load after 20 tasks of 10 s, a pause without a task, 20 more, and so on."""
    harness = PoolHarness(
        PoolSpec.model_validate({**pool_spec(**REDIS, maxWorkers=40).model_dump(by_alias=True), "scaling": {}})
    )
    load = Load(harness, seconds=10.0)
    for _ in range(times):
        load.arrive(20)
        load.run(10.0 + pause_seconds)
    return load


def test_bursts_in_a_row_find_their_workers() -> None:
    """The second burst shows the pool that they come again."""
    assert min(bursts(6, 10.0).sizes[-80:]) == 20


@pytest.mark.parametrize("pause_seconds", [5.0, 10.0, 15.0, 25.0, 45.0])
def test_size_turns_twice_a_minute_at_most(pause_seconds: float) -> None:
    load = bursts(10, pause_seconds)

    assert turns(load.sizes) <= 2 * math.ceil(10 * (10.0 + pause_seconds) / 60.0)
