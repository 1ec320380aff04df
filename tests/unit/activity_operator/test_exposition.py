"""The text of the pools' series is the one that the metrics library itself would write and read."""

import dataclasses

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from activity_operator.core.task_counts import TaskCounts
from activity_operator.exposition import label_value, metric_text, pool_labels
from activity_operator.pool_series import PoolNumbers, PoolSeries
from activity_operator.task_series import TaskSeries
from activity_worker.contract.durations import DURATION_BOUNDS

KEY = ("team", "resize")
LABELS = {"namespace": "team", "activitypool": "resize"}
NUMBERS = PoolNumbers(3, 0, 10, True, 7, (0, 0, 3, 0, 0, 0, 0), (("Ready", "True"),), 4, (('1.0 "b"\\', 3),))


def parsed(text: str) -> dict[str, Metric]:
    return {metric.name: metric for metric in text_string_to_metric_families(text)}


def rendered(series: PoolSeries | TaskSeries) -> dict[str, Metric]:
    return parsed("".join(series.render()))


def by_library(metric: Metric) -> Metric:
    """Return the metric after the library has written and read it."""
    registry = CollectorRegistry()
    registry.register(type("One", (), {"collect": lambda _: [metric]})())
    return parsed(generate_latest(registry).decode())[metric.name]


def test_family_is_read_as_the_librarys_own() -> None:
    odd = 'a "quoted" \\ and\nbroken value'
    text = metric_text("depth", "gauge", "How deep", [(f'{pool_labels(KEY)},of="{label_value(odd)}"', 1.5e-7)])
    theirs = GaugeMetricFamily("depth", "How deep", labels=["namespace", "activitypool", "of"])
    theirs.add_metric([*KEY, odd], 1.5e-7)

    assert parsed(text) == {"depth": by_library(theirs)}


def test_numbers_of_a_pool_are_its_series() -> None:
    series = PoolSeries()
    series.set(KEY, NUMBERS)
    found = {
        metric.name.removeprefix("activitypool_"): [
            (*(value for name, value in sample.labels.items() if name not in LABELS), sample.value)
            for sample in metric.samples
            if sample.value and sample.labels.items() >= LABELS.items()
        ]
        for metric in rendered(series).values()
    }

    assert found == {
        "status_condition": [("Ready", "True", 1.0)],
        "workers": [("running", 3.0)],
        "replicas_desired": [(3.0,)],
        "replicas_recommended": [(4.0,)],
        "replicas_min": [],
        "replicas_max": [(10.0,)],
        "backlog_tasks": [(7.0,)],
        "runtime_workers": [('1.0 "b"\\', 3.0)],
        "paused": [(1.0,)],
    }


def test_unknown_numbers_have_no_series() -> None:
    series = PoolSeries()
    series.set(KEY, dataclasses.replace(NUMBERS, backlog=None, recommended=None))
    found = rendered(series)

    assert not found["activitypool_backlog_tasks"].samples
    assert not found["activitypool_replicas_recommended"].samples


def test_durations_of_tasks_are_a_histogram_of_the_library() -> None:
    durations = tuple(1 for _ in range(len(DURATION_BOUNDS) + 1))
    series = TaskSeries()
    series.show(KEY)
    series.add(KEY, TaskCounts(succeeded=len(durations), durations=durations, task_seconds=12.5))
    ours = rendered(series)["activitypool_task_duration_seconds"]
    theirs = HistogramMetricFamily(ours.name, ours.documentation, labels=list(LABELS))
    buckets = [(sample.labels["le"], sample.value) for sample in ours.samples if "le" in sample.labels]
    theirs.add_metric(list(LABELS.values()), buckets, 12.5)

    assert ours == by_library(theirs)
    assert [count for _, count in buckets][-1] == len(durations)


def test_counts_of_tasks_are_counters() -> None:
    series = TaskSeries()
    series.show(KEY)
    series.add(KEY, TaskCounts(received=4, succeeded=2, failed=1, busy_seconds=1.5))
    found = rendered(series)

    assert [sample.value for sample in found["activitypool_tasks"].samples] == [2.0, 1.0]
    assert {name: metric.samples[0].value for name, metric in found.items() if metric.type == "counter"} == {
        "activitypool_tasks": 2.0,
        "activitypool_tasks_received": 4.0,
        "activitypool_task_heartbeat_failures": 0.0,
        "activitypool_empty_polls": 0.0,
        "activitypool_busy_seconds": 1.5,
        "activitypool_slot_seconds": 0.0,
    }
