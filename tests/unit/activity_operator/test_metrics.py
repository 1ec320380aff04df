"""Metrics: documented names, few labels, and no series of a deleted pool."""

from collections.abc import Iterator
from typing import Any

import pytest

from activity_operator.api.spec import parse_spec
from activity_operator.core.backlog import Backlog
from activity_operator.core.decision import Decision, Limit, ScalingMemory, Size
from activity_operator.core.observation import Observation, PoolFacts, SourceFacts
from activity_operator.metrics import Metrics

KEY = ("ns", "p")
ARN = "arn:aws:states:us-east-1:123456789012:activity:a"
SPEC = parse_spec({"activityArn": ARN, "handlerImage": "i", "maxWorkers": 5})


def observed(backlog: int | None = None) -> Observation:
    return Observation(now=0.0, pool=PoolFacts("ns", "p", "u", 1), source=SourceFacts())


def filled(backlog: int | None = 7) -> Metrics:
    metrics = Metrics("1.0")
    decision = Decision(Size(3, Limit.DEMAND, "because"), ScalingMemory(), backlog=Backlog(backlog))
    metrics.observed(KEY, SPEC, observed(backlog), decision, {"conditions": [{"type": "Ready", "status": "True"}]})
    metrics.scaled(KEY, 3, "demand", 0.1)
    metrics.lost(KEY, "oom")
    return metrics


def test_series_of_a_pool_are_labelled_with_namespace_and_name() -> None:
    text = filled().render().decode()

    assert 'activitypool_replicas_desired{activitypool="p",namespace="ns"} 3\n' in text
    assert 'activitypool_backlog_tasks{activitypool="p",namespace="ns"} 7\n' in text
    ready = 'activitypool_status_condition{activitypool="p",namespace="ns",condition="Ready",status="True"} 1\n'
    assert ready in text
    up = 'activitypool_scale_decisions_total{activitypool="p",direction="up",namespace="ns",reason="demand"} 1.0'
    assert up in text
    assert "_created" not in text


def test_unknown_backlog_has_no_series() -> None:
    metrics = filled(7)
    decision = Decision(Size(3, Limit.DEMAND, "because"), ScalingMemory())
    metrics.observed(KEY, SPEC, observed(None), decision, {})

    assert "activitypool_backlog_tasks{" not in metrics.render().decode()


def test_dropped_condition_has_no_series() -> None:
    metrics = filled()
    decision = Decision(Size(3, Limit.DEMAND, "because"), ScalingMemory())
    metrics.observed(KEY, SPEC, observed(), decision, {"conditions": [{"type": "Paused", "status": "True"}]})

    assert 'condition="Ready"' not in metrics.render().decode()


def test_deleted_pool_has_no_series() -> None:
    metrics = filled()
    metrics.forget(KEY)

    assert 'activitypool="p"' not in metrics.render().decode()


class Watched(dict[Any, Any]):
    """A table of series that fails the test when somebody iterates over it."""

    def __iter__(self) -> Iterator[Any]:
        pytest.fail("iterated over the series of all pools")


def test_series_of_one_pool_are_set_and_removed_without_the_others() -> None:
    """With 5,000 pools an iteration over all series takes milliseconds, and the end of a term removes every pool."""
    metrics = filled()
    for metric in (metrics._decisions, metrics._lost, metrics._latency):
        metric._metrics = Watched(metric._metrics)
    decision = Decision(Size(3, Limit.DEMAND, "because"), ScalingMemory())
    metrics.observed(KEY, SPEC, observed(None), decision, {"conditions": [{"type": "Paused", "status": "True"}]})
    metrics.scaled(KEY, -1, "demand", 0.1)
    metrics.forget(KEY)

    for metric in (metrics._decisions, metrics._lost, metrics._latency):
        metric._metrics = dict(metric._metrics.items())
    assert 'activitypool="p"' not in metrics.render().decode()


def test_end_of_a_term_removes_the_series_of_every_pool() -> None:
    metrics = filled()
    metrics.scaled(("ns", "q"), -1, "demand", 0.1)
    metrics.forget_all()

    assert "activitypool=" not in metrics.render().decode()
    metrics.scaled(KEY, 1, "demand", 0.1)
    metrics.forget(KEY)
    assert "activitypool=" not in metrics.render().decode()


def test_call_is_counted_by_status_and_timed_by_outcome() -> None:
    metrics = Metrics("1.0")
    metrics.called("cloudwatch", "GetMetricData", 400, "throttled", 0.2)
    text = metrics.render().decode()

    labels = 'backend="cloudwatch",code="400",operation="GetMetricData"'
    assert f"activitypool_backend_requests_total{{{labels}}} 1.0" in text
    labels = 'backend="cloudwatch",kind="call",operation="GetMetricData",outcome="throttled"'
    assert f"activitypool_backend_request_duration_seconds_sum{{{labels}}} 0.2" in text


def test_long_polls_and_calls_have_separate_latency_series() -> None:
    metrics = Metrics("1.0")
    metrics.called("stepfunctions", "GetActivityTask", 200, "ok", 60.0)
    metrics.called("stepfunctions", "SendTaskHeartbeat", 200, "ok", 0.1)
    samples = {
        (sample.labels["kind"], sample.labels["operation"]): sample.value
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "activitypool_backend_request_duration_seconds_sum"
    }

    assert samples == {("long_poll", "GetActivityTask"): 60.0, ("call", "SendTaskHeartbeat"): 0.1}


def test_latency_buckets_of_long_polls_reach_beyond_60_seconds() -> None:
    metrics = Metrics("1.0")
    metrics.called("stepfunctions", "GetActivityTask", 200, "ok", 60.4)

    assert 'le="65.0",operation="GetActivityTask",outcome="ok"} 1.0' in metrics.render().decode()
