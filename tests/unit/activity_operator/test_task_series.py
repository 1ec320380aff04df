"""The task counters of pools: no series decreases, and none belongs to a deleted pool."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from activity_operator import task_series
from activity_operator.core.task_counts import TaskCounts
from activity_operator.task_series import TaskSeries
from activity_worker.contract.durations import PLACES, place_of

KEY = ("media", "resize")
COUNTS = TaskCounts(
    received=5, succeeded=3, failed=1, heartbeat_failures=2, empty_polls=4, busy_seconds=6.5, slot_seconds=8.0
)


def samples(series: TaskSeries, key: tuple[str, str] = KEY) -> dict[str, float]:
    """Return the values of the pool's series by metric name, with the outcome where the series has one."""
    return {
        sample.name.removeprefix("activitypool_")
        + "".join(f" {sample.labels[k]}" for k in sample.labels.keys() - POOL): (sample.value)
        for metric in text_string_to_metric_families("".join(series.render()))
        for sample in metric.samples
        if (sample.labels["namespace"], sample.labels["activitypool"]) == key
    }


POOL = {"namespace", "activitypool"}


@pytest.fixture
def series() -> TaskSeries:
    return TaskSeries()


def test_series_show_what_workers_did_by_outcome(series: TaskSeries) -> None:
    series.show(KEY)
    series.add(KEY, COUNTS)
    series.add(KEY, TaskCounts(succeeded=1, slot_seconds=0.5))

    assert samples(series) == {
        "tasks_total succeeded": 4,
        "tasks_total failed": 1,
        "tasks_received_total": 5,
        "task_heartbeat_failures_total": 2,
        "empty_polls_total": 4,
        "busy_seconds_total": 6.5,
        "slot_seconds_total": 8.5,
    }


def test_new_pool_has_series_at_zero(series: TaskSeries) -> None:
    series.show(KEY)

    assert len(samples(series)) == 7
    assert set(samples(series).values()) == {0}


def test_end_of_term_hides_the_series_and_a_later_term_goes_on(series: TaskSeries) -> None:
    series.show(KEY)
    series.add(KEY, COUNTS)
    series.clear()
    series.clear()
    assert samples(series) == {}

    series.show(KEY)
    series.add(KEY, COUNTS)
    assert samples(series)["tasks_total succeeded"] == 6


def test_report_makes_no_series_of_a_pool_that_is_gone(series: TaskSeries) -> None:
    series.show(KEY)
    series.forget(KEY)
    series.add(KEY, COUNTS)

    assert samples(series) == {}


def test_counts_from_before_the_first_decision_are_shown_with_it(series: TaskSeries) -> None:
    series.add(KEY, COUNTS)
    series.show(KEY)

    assert samples(series)["tasks_received_total"] == 5


def test_counts_of_pools_without_series_are_bounded(series: TaskSeries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_series, "MAX_KEPT_POOLS", 2)
    for name in ("a", "b", "c"):
        series.add(("media", name), COUNTS)
    for name in ("a", "b", "c"):
        series.show(("media", name))

    received = {name: samples(series, ("media", name))["tasks_received_total"] for name in ("a", "b", "c")}
    assert received == {"a": 0, "b": 5, "c": 5}


def test_durations_are_a_histogram_of_pools_that_report_them(series: TaskSeries) -> None:
    durations = [0] * PLACES
    durations[place_of(0.3)], durations[place_of(45.0)] = 3, 1
    series.show(KEY)
    series.add(KEY, TaskCounts(succeeded=4, task_seconds=45.9, durations=tuple(durations)))
    series.show(("team", "other"))

    found = {
        (sample.labels["namespace"], sample.labels["activitypool"], sample.labels["le"]): sample.value
        for family in text_string_to_metric_families("".join(series.render()))
        for sample in family.samples
        if sample.name == "activitypool_task_duration_seconds_bucket"
    }
    assert found[*KEY, "0.1"] == 0
    assert found[*KEY, "0.5"] == found[*KEY, "30"] == 3
    assert found[*KEY, "60"] == found[*KEY, "+Inf"] == 4
    assert {labels[:2] for labels in found} == {KEY}
