"""Durations in a report: counted by bounds, summed by the operator, and read back as a quantile."""

import pytest

from activity_worker.contract import ContractError, Counters
from activity_worker.contract.durations import DURATION_BOUNDS, PLACES, added, increase, place_of, quantile
from activity_worker.runtime.counters import TaskCounters


@pytest.mark.parametrize(("seconds", "place"), [(0.0, 0), (0.01, 0), (0.011, 1), (1.0, 5), (9e9, PLACES - 1)])
def test_task_is_counted_at_the_first_bound_that_it_does_not_exceed(seconds: float, place: int) -> None:
    assert place_of(seconds) == place


def test_sums_and_differences_take_missing_places_as_zero() -> None:
    assert added((1, 2), (1, 1, 5)) == (2, 3, 5)
    assert increase((3, 2, 1), (1, 4)) == (2, 0, 1)
    assert increase((), (1,)) == ()


def test_quantile_lies_within_the_bounds_of_its_task() -> None:
    counters = TaskCounters()
    for _ in range(94):
        counters.task_succeeded(0.7)
    for _ in range(6):
        counters.task_succeeded(25.0)
    found = quantile(counters.totals().durations, 0.95)

    assert found is not None
    assert 20.0 < found <= 30.0
    assert quantile((), 0.95) is None
    assert quantile([0] * (PLACES - 1) + [1], 0.95) == DURATION_BOUNDS[-1]


def test_counters_keep_times_and_the_last_errors_name() -> None:
    counters = TaskCounters()
    counters.task_succeeded(1.0)
    counters.task_failed(3.0, "ValueError")

    totals = counters.totals()
    assert (totals.succeeded, totals.failed, totals.task_seconds, totals.last_error) == (1, 1, 4.0, "ValueError")
    assert sum(totals.durations) == 2
    assert Counters.from_wire(totals.to_wire()) == totals


def test_report_of_an_earlier_worker_has_no_durations() -> None:
    assert Counters.from_wire({"received": 1}) == Counters(received=1)


def test_places_of_a_newer_worker_are_left_out_and_nonsense_is_refused() -> None:
    assert Counters.from_wire({"durations": [1] * 50}).durations == (1,) * PLACES
    for wrong in ([-1], ["1"], [0] * 1000, "1"):
        with pytest.raises(ContractError, match="durations"):
            Counters.from_wire({"durations": wrong})


def test_long_name_of_an_error_is_cut() -> None:
    assert len(Counters.from_wire({"lastError": "E" * 500}).last_error) == 64
