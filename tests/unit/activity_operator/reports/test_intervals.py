"""The interval at which workers are asked to report."""

import pytest

from activity_operator.reports.intervals import plan_intervals


def test_small_fleet_reports_every_second() -> None:
    assert plan_intervals(10, 0).normal == 1.0


@pytest.mark.parametrize("workers", [1, 199, 200, 201, 5_000, 20_000])
@pytest.mark.parametrize("hurried", [0, 1, 150, 5_000])
@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_fleet_stays_under_the_rate_for_any_jitter(workers: int, hurried: int, jitter: float) -> None:
    hurried = min(hurried, workers)
    intervals = plan_intervals(workers, hurried, rate=200.0)

    calm = (workers - hurried) / intervals.order(hurried=False, jitter=jitter)
    pressed = hurried / intervals.order(hurried=True, jitter=jitter)

    assert round(calm + pressed, 6) <= 200.0


def test_worker_with_a_waiting_order_reports_every_second() -> None:
    intervals = plan_intervals(10_000, 5, rate=200.0)

    assert intervals.hurried == 1.0
    assert intervals.normal == pytest.approx(9_995 / 195)


def test_few_hurried_workers_hardly_slow_the_others() -> None:
    assert plan_intervals(200, 1, rate=200.0).normal == 1.0
    assert plan_intervals(400, 10, rate=200.0).normal == pytest.approx(390 / 190)
    assert plan_intervals(400, 150, rate=200.0).normal == pytest.approx(2.5)


def test_jitter_only_lengthens_an_interval() -> None:
    intervals = plan_intervals(10, 0)

    assert intervals.order(hurried=False, jitter=0.0) == 1.0
    assert 1.0 < intervals.order(hurried=False, jitter=1.0) <= 1.1


@pytest.mark.parametrize(("workers", "hurried", "seconds"), [(1000, 1000, 5.0), (1000, 500, 5.0), (1000, 100, 1.0)])
def test_hurried_workers_get_the_rate_that_nobody_else_uses(workers: int, hurried: int, seconds: float) -> None:
    assert plan_intervals(workers, hurried, rate=200.0).hurried == pytest.approx(seconds)
