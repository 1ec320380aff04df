"""PURE: a trace from counts over time: an answer of Prometheus' query_range, or of CloudWatch's GetMetricData.

Such a file says how many tasks arrived in each step, not when each did. The tasks of a step are spread over it at
random, and their durations are drawn around a mean, so that a seed gives the same trace again.
"""

import json
import math
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from activity_operator.simulate.csv_trace import MAX_TASKS, TAIL_SECONDS
from activity_operator.simulate.errors import SimulationError
from activity_operator.simulate.traces import Trace, TraceTask

#: Spread of the durations (lognormal), as in the generated traces.
SIGMA = 0.5
#: Seconds of a step if a file has only one.
LONE_STEP_SECONDS = 60.0
SCHEDULED, RUN_TIME = "ActivitiesScheduled", "ActivityRunTime"
_FORMS = (
    "write the answer of Prometheus' /api/v1/query_range, or of `aws cloudwatch get-metric-data` with the metric "
    f"{SCHEDULED}"
)


@dataclass(frozen=True, slots=True)
class _Step:
    """The tasks that arrived in the `seconds` from `at` on, and their mean duration if the file has it."""

    at: float
    seconds: float
    tasks: float
    mean_seconds: float | None = None


def read_metric_trace(name: str, text: str, seed: int, task_seconds: float | None) -> Trace:
    """Return the trace of a JSON file. `task_seconds` is the mean duration of a task, None if the file has it.

    Raises SimulationError with the file's name, the fault and the fix.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SimulationError(f"{name}: is no JSON: {error}; {_FORMS}") from error
    if not isinstance(data, Mapping):
        raise SimulationError(f"{name}: is no object; {_FORMS}")
    steps = list(_cloudwatch(name, data) if "MetricDataResults" in data else _prometheus(name, data))
    tasks = sorted(_tasks(name, steps, seed, task_seconds), key=lambda task: task.at)
    if not tasks:
        raise SimulationError(f"{name}: has no task in any step; choose a time in which tasks arrived")
    begin = min(step.at for step in steps)
    moved = tuple(TraceTask(task.at - begin, task.seconds) for task in tasks)
    return Trace(name, max(step.at + step.seconds for step in steps) - begin + TAIL_SECONDS, moved)


def _prometheus(name: str, data: Mapping[str, Any]) -> Iterator[_Step]:
    """Yield the steps of a range query for tasks per second; the rate of a step is that of the time before it."""
    body = data.get("data")
    series = body.get("result") if isinstance(body, Mapping) and body.get("resultType") == "matrix" else None
    if not isinstance(series, list):
        raise SimulationError(f"{name}: has no data.result of the type matrix; {_FORMS}")
    if len(series) != 1:
        raise SimulationError(f"{name}: has {len(series)} series instead of one; write sum(...) around the query")
    points = _points(name, ((item[0], item[1]) for item in _pairs(name, series[0].get("values"))))
    for at, seconds, value in _with_steps(points):
        yield _Step(at - seconds, seconds, value * seconds)


def _cloudwatch(name: str, data: Mapping[str, Any]) -> Iterator[_Step]:
    """Yield the steps of the metric ActivitiesScheduled; the mean duration comes from ActivityRunTime, in ms."""
    results = [one for one in data["MetricDataResults"] if isinstance(one, Mapping)]
    counts = _result(name, results, SCHEDULED)
    if counts is None:
        raise SimulationError(f"{name}: has no result labelled {SCHEDULED}; ask for this metric with the statistic Sum")
    means = dict(_result(name, results, RUN_TIME) or ())
    for at, seconds, value in _with_steps(counts):
        mean = means.get(at)
        yield _Step(at, seconds, value, None if mean is None else mean / 1000.0)


def _result(name: str, results: list[Mapping[str, Any]], metric: str) -> list[tuple[float, float]] | None:
    found = [one for one in results if metric in str(one.get("Label", ""))]
    if not found:
        return None
    times, values = found[0].get("Timestamps"), found[0].get("Values")
    if not isinstance(times, list) or not isinstance(values, list) or len(times) != len(values):
        raise SimulationError(f"{name}: {metric} needs as many Timestamps as Values")
    return _points(name, ((_time(name, at), value) for at, value in zip(times, values, strict=True)))


def _pairs(name: str, values: Any) -> Iterable[list[Any]]:
    if not isinstance(values, list) or not all(isinstance(item, list) and len(item) == 2 for item in values):
        raise SimulationError(f"{name}: values of the series must be pairs of time and value")
    return values


def _points(name: str, raw: Iterable[tuple[Any, Any]]) -> list[tuple[float, float]]:
    """Return the points in the order of time. NaN, which Prometheus gives for a rate of nothing, counts as 0."""
    points = []
    for at, value in raw:
        try:
            point = float(at), float(value)
        except (TypeError, ValueError) as error:
            raise SimulationError(f"{name}: {value!r} at {at!r} is no number") from error
        if not math.isfinite(point[0]) or math.isinf(point[1]) or point[1] < 0:
            raise SimulationError(f"{name}: {value!r} at {at!r} must be a number of at least 0")
        points.append((point[0], 0.0 if math.isnan(point[1]) else point[1]))
    if not points:
        raise SimulationError(f"{name}: has no values; {_FORMS}")
    return sorted(points)


def _time(name: str, at: Any) -> float:
    if isinstance(at, int | float):
        return float(at)
    try:
        return datetime.fromisoformat(str(at)).timestamp()
    except ValueError as error:
        raise SimulationError(f"{name}: the time {at!r} is no time such as 2026-11-22T10:00:00Z") from error


def _with_steps(points: list[tuple[float, float]]) -> Iterator[tuple[float, float, float]]:
    """Yield time, seconds of the step, and value. A gap is no long step: all steps have the length of the shortest."""
    lengths = [after[0] - before[0] for before, after in pairwise(points) if after[0] > before[0]]
    seconds = min(lengths, default=LONE_STEP_SECONDS)
    yield from ((at, seconds, value) for at, value in points)


def _tasks(name: str, steps: list[_Step], seed: int, task_seconds: float | None) -> Iterator[TraceTask]:
    random_source = random.Random(f"{name}/{seed}")  # noqa: S311 - a model, no secret
    if sum(step.tasks for step in steps) > MAX_TASKS:
        raise SimulationError(f"{name}: has more than {MAX_TASKS} tasks; keep a part of them")
    owed = 0.0
    for step in steps:
        # A rate such as 0.01 a second makes a task in some steps only.
        owed += step.tasks
        number, owed = int(owed + 1e-9), owed - int(owed + 1e-9)
        mean = step.mean_seconds if task_seconds is None else task_seconds
        if number and not mean:
            raise SimulationError(f"{name}: says not how long a task takes; add --task-seconds, its mean in seconds")
        for _ in range(number):
            seconds = random_source.lognormvariate(math.log(mean or 1.0) - SIGMA**2 / 2, SIGMA)
            yield TraceTask(step.at + random_source.uniform(0.0, step.seconds), seconds)
