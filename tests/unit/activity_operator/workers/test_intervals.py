"""How often workers are asked to report."""

import pytest

from activity_operator.workers.intervals import plan


def test_a_small_fleet_reports_every_second() -> None:
    assert plan(10, 0).normal == 1.0


@pytest.mark.parametrize("workers", [1, 199, 200, 201, 5_000, 20_000])
@pytest.mark.parametrize("hurried", [0, 1, 150, 5_000])
@pytest.mark.parametrize("dice", [0.0, 1.0])
def test_the_whole_fleet_stays_under_the_rate_whatever_the_dice_say(workers: int, hurried: int, dice: float) -> None:
    hurried = min(hurried, workers)
    intervals = plan(workers, hurried, rate=200.0)

    calm = (workers - hurried) / intervals.order(hurried=False, dice=dice)
    pressed = hurried / intervals.order(hurried=True, dice=dice)

    assert round(calm + pressed, 6) <= 200.0


def test_a_worker_that_an_order_waits_for_reports_every_second_in_a_fleet_of_thousands() -> None:
    intervals = plan(10_000, 5, rate=200.0)

    assert intervals.hurried == 1.0
    assert intervals.normal > 50.0


def test_jitter_only_ever_lengthens_an_interval() -> None:
    intervals = plan(10, 0)

    assert intervals.order(hurried=False, dice=0.0) == 1.0
    assert 1.0 < intervals.order(hurried=False, dice=1.0) <= 1.1
