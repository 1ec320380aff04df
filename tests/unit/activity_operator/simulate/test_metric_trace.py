"""Traces from counts over time: Prometheus' range queries and CloudWatch's metric data."""

import json
from collections import Counter
from typing import Any

import pytest

from activity_operator.simulate.errors import SimulationError
from activity_operator.simulate.metric_trace import read_metric_trace
from activity_operator.simulate.traces import Trace

HOUR = 1_763_800_000.0


def prometheus(*values: tuple[float, str], series: int = 1) -> dict[str, Any]:
    one = {"metric": {}, "values": [[at, value] for at, value in values]}
    return {"status": "success", "data": {"resultType": "matrix", "result": [one] * series}}


def cloudwatch(counts: list[float], run_times: list[float] | None = None) -> dict[str, Any]:
    """Return counts a minute, the newest first as CloudWatch answers by default."""
    times = [f"2026-11-20T08:{minute:02}:00+00:00" for minute in reversed(range(len(counts)))]
    results = [{"Id": "a", "Label": "ActivitiesScheduled", "Timestamps": times, "Values": counts[::-1]}]
    if run_times is not None:
        results.append({"Id": "b", "Label": "ActivityRunTime", "Timestamps": times, "Values": run_times[::-1]})
    return {"MetricDataResults": results}


def read(data: object, seed: int = 1, task_seconds: float | None = 2.0) -> Trace:
    return read_metric_trace("t.json", json.dumps(data), seed, task_seconds)


def per_step(trace: Trace, seconds: float) -> dict[int, int]:
    return dict(Counter(int(task.at // seconds) for task in trace.tasks))


def test_rate_of_a_prometheus_step_is_that_of_the_time_before_it() -> None:
    trace = read(prometheus((HOUR, "1"), (HOUR + 15, "0"), (HOUR + 30, "2")))

    assert per_step(trace, 15.0) == {0: 15, 2: 30}
    assert trace.seconds == 45 + 60
    assert all(before.at <= after.at for before, after in zip(trace.tasks, trace.tasks[1:], strict=False))


def test_small_rates_add_up_to_whole_tasks() -> None:
    trace = read(prometheus(*((HOUR + 10 * step, "0.01") for step in range(1000))))

    assert len(trace.tasks) == 100


def test_gap_between_two_steps_has_no_tasks() -> None:
    trace = read(prometheus((HOUR, "1"), (HOUR + 10, "1"), (HOUR + 100, "1")))

    assert per_step(trace, 10.0) == {0: 10, 1: 10, 10: 10}


def test_rate_of_nothing_is_zero() -> None:
    assert len(read(prometheus((HOUR, "NaN"), (HOUR + 10, "1"))).tasks) == 10


def test_cloudwatch_counts_and_run_times_make_tasks_of_each_minute() -> None:
    trace = read(cloudwatch([30, 0, 60], [1000.0, 0.0, 8000.0]), task_seconds=None)

    assert per_step(trace, 60.0) == {0: 30, 2: 60}
    first = [task.seconds for task in trace.tasks if task.at < 60]
    last = [task.seconds for task in trace.tasks if task.at >= 120]
    assert 0.5 < sum(first) / len(first) < 2.0
    assert 4.0 < sum(last) / len(last) < 16.0


def test_seed_gives_the_same_trace_again() -> None:
    data = cloudwatch([20, 20])

    assert read(data).tasks == read(data).tasks
    assert read(data).tasks != read(data, seed=2).tasks


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "t.json: is no object; write the answer of Prometheus' /api/v1/query_range"),
        ({"data": {"resultType": "vector", "result": []}}, "has no data.result of the type matrix"),
        (prometheus((HOUR, "1"), series=2), "has 2 series instead of one; write sum(...) around the query"),
        (prometheus(), "has no values"),
        (prometheus((HOUR, "much")), "'much' at 1763800000.0 is no number"),
        (prometheus((HOUR, "-1")), "'-1' at 1763800000.0 must be a number of at least 0"),
        (prometheus((HOUR, "0"), (HOUR + 10, "0")), "has no task in any step"),
        (prometheus((HOUR, "1e9"), (HOUR + 10, "1")), "has more than 1000000 tasks; keep a part of them"),
        ({"MetricDataResults": []}, "has no result labelled ActivitiesScheduled"),
    ],
)
def test_unusable_file_is_refused_with_its_fault_and_the_fix(data: object, sentence: str) -> None:
    with pytest.raises(SimulationError) as refused:
        read(data)

    assert sentence in str(refused.value)


def test_file_without_durations_needs_them_as_an_option() -> None:
    with pytest.raises(SimulationError, match="add --task-seconds"):
        read(cloudwatch([3]), task_seconds=None)


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(SimulationError, match=r"t\.json: is no JSON"):
        read_metric_trace("t.json", "arrival,duration", 1, 2.0)
