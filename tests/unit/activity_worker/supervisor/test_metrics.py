"""The worker's numbers, and what Prometheus reads of them."""

import platform
from math import inf

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from activity_worker.supervisor.metrics import Durations, WorkerMetrics

Sample = tuple[str, tuple[tuple[str, str], ...]]


def samples_of(metrics: WorkerMetrics) -> dict[Sample, float]:
    """Return the samples of a scrape, by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(generate_latest(metrics.registry()).decode())
        for sample in family.samples
    }


def test_new_worker_has_every_outcome_and_no_duration() -> None:
    found = samples_of(WorkerMetrics("1.2.3", slots=4))

    info = (("python", platform.python_version()), ("version", "1.2.3"))
    assert found["activity_worker_info", info] == 1
    assert found["activity_worker_slots", ()] == 4
    assert found["activity_worker_tasks_total", (("outcome", "handed_over"),)] == 0
    assert found["activity_worker_heartbeats_total", (("result", "refused"),)] == 0
    assert found["activity_worker_last_heartbeat_timestamp_seconds", ()] == 0
    assert found["activity_worker_task_duration_seconds_count", ()] == 0
    assert not [name for name, _ in found if name.endswith("_created")]


def test_scrape_has_what_was_counted_so_far() -> None:
    metrics = WorkerMetrics("1.2.3", slots=1)
    busy, draining = [0], [False]
    metrics.watch(lambda: busy[0], lambda: draining[0])
    samples_of(metrics)  # a second scrape has the numbers of its own time

    metrics.task_ended("failed", 0.1)
    metrics.task_ended("failed", 2.0)
    metrics.polled(70.0)
    metrics.heartbeat_accepted(1_700_000_000.5)
    metrics.heartbeat_refused()
    metrics.reported("answered")
    busy[0], draining[0] = 1, True
    found = samples_of(metrics)

    assert found["activity_worker_tasks_total", (("outcome", "failed"),)] == 2
    assert found["activity_worker_tasks_total", (("outcome", "succeeded"),)] == 0
    assert found["activity_worker_task_duration_seconds_bucket", (("le", "0.1"),)] == 1
    assert found["activity_worker_task_duration_seconds_bucket", (("le", "1.0"),)] == 1
    assert found["activity_worker_task_duration_seconds_bucket", (("le", "2.5"),)] == 2
    assert found["activity_worker_task_duration_seconds_sum", ()] == 2.1
    assert found["activity_worker_poll_duration_seconds_bucket", (("le", "65.0"),)] == 0
    assert found["activity_worker_poll_duration_seconds_bucket", (("le", "+Inf"),)] == 1
    assert found["activity_worker_poll_duration_seconds_count", ()] == 1
    assert found["activity_worker_heartbeats_total", (("result", "accepted"),)] == 1
    assert found["activity_worker_heartbeats_total", (("result", "refused"),)] == 1
    assert found["activity_worker_last_heartbeat_timestamp_seconds", ()] == 1_700_000_000.5
    assert found["activity_worker_reports_total", (("result", "answered"),)] == 1
    assert (found["activity_worker_tasks_in_progress", ()], found["activity_worker_draining", ()]) == (1, 1)


def test_duration_that_equals_a_bound_is_in_its_bucket() -> None:
    durations = Durations((0.5, 1.0))
    for seconds in (0.5, 0.6, 1.0, 1.1):
        durations.observe(seconds)

    assert durations.buckets() == [(0.5, 1), (1.0, 3), (inf, 4)]
