"""Parsing of a declared spec, and the error that names the field, the value and the fix."""

from typing import Any

import pytest
from pydantic import ValidationError

from activity_operator.api.conditions import Reason
from activity_operator.api.spec import PoolSpec, SecretKeyRef, SpecError, parse_spec
from tests.unit.activity_operator.api.arn_cases import GOOD_ARN

MINIMAL: dict[str, Any] = {
    "activityArn": GOOD_ARN,
    "handlerImage": "registry.example.com/resize:1.4.2",
    "maxWorkers": 5,
}
REDIS = {"address": "redis:6379", "flow": "images", "queue": "resize"}
SWF = {"domain": "shop", "taskList": "invoices"}
STORE = {"urlSecretRef": {"name": "tasks", "key": "url"}}


def refusal(**changes: Any) -> SpecError:
    """Return the error for the minimal spec with these changes; None removes a field."""
    raw = {field: value for field, value in {**MINIMAL, **changes}.items() if value is not None}
    with pytest.raises(SpecError) as refused:
        parse_spec(raw)
    return refused.value


def test_three_fields_are_required_and_the_others_have_defaults() -> None:
    spec = parse_spec(MINIMAL)

    assert (spec.min_workers, spec.slots_per_worker, spec.replicas, spec.paused) == (0, 1, None, False)
    assert spec.scaling.target_utilization == 1.0
    assert spec.scaling.scale_down.stabilization_window_seconds is None
    assert spec.scaling.scale_down.zero_after_seconds is None
    assert spec.reports.timeout_seconds == 60
    assert spec.stalled.deadline_seconds == 300
    assert spec.task_heartbeat.interval_seconds == 10
    assert spec.task_deadline_seconds is None
    assert spec.drain.timeout_seconds == 1800
    assert (spec.activation.mode, spec.activation.hold_seconds) == ("Sentinel", None)
    assert spec.pod_template == {}


def test_both_forms_of_the_source_give_the_same_arn() -> None:
    long_form = {**MINIMAL, "source": {"stepFunctions": {"activityArn": GOOD_ARN}}}
    del long_form["activityArn"]

    assert parse_spec(long_form).arn == parse_spec(MINIMAL).arn == GOOD_ARN


def test_region_of_the_arn_is_used_unless_the_spec_sets_one() -> None:
    assert parse_spec(MINIMAL).region == "us-east-1"
    assert parse_spec({**MINIMAL, "aws": {"region": "eu-west-1"}}).region == "eu-west-1"


def test_spec_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        parse_spec(MINIMAL).max_workers = 7


def test_fields_of_a_newer_crd_are_ignored() -> None:
    assert parse_spec({**MINIMAL, "schedules": [], "scaling": {"unknownSeconds": 3}}) == parse_spec(MINIMAL)


def test_spec_can_be_written_with_python_names() -> None:
    assert PoolSpec(activity_arn=GOOD_ARN, handler_image=MINIMAL["handlerImage"], max_workers=5) == parse_spec(MINIMAL)


def counted_spec(**source: Any) -> PoolSpec:
    """Return a small spec with this source."""
    return parse_spec({"source": source, "handlerImage": "registry.example.com/resize:1.4.2", "maxWorkers": 5})


def test_redis_source_has_the_defaults_of_the_dialect_and_no_arn() -> None:
    spec = counted_spec(redis=REDIS)

    assert (spec.source_kind, spec.arn, spec.url_secret_ref) == ("redis", "", None)
    assert spec.redis is not None
    assert (spec.redis.lock_seconds, spec.redis.renew_lock, spec.redis.conclude) == (180, False, "Dialect")


def test_task_store_counts_all_tasks_unless_some_are_named() -> None:
    spec = counted_spec(taskStore=STORE)

    assert (spec.source_kind, spec.arn, spec.url_secret_ref) == ("taskStore", "", SecretKeyRef(name="tasks", key="url"))
    assert spec.task_store is not None
    assert (spec.task_store.tasks, spec.task_store.lease_seconds) == ([], 60)


def test_task_list_of_swf_needs_a_region_and_registers_nothing_by_default() -> None:
    spec = parse_spec({**MINIMAL, "activityArn": None, "source": {"swf": SWF}, "aws": {"region": "eu-west-1"}})

    assert (spec.source_kind, spec.arn, spec.region, spec.url_secret_ref) == ("swf", "", "eu-west-1", None)
    assert spec.swf is not None
    assert (spec.swf.domain, spec.swf.task_list, spec.swf.register_activity_types) == ("shop", "invoices", False)


def test_task_lists_are_one_source_only_in_one_domain_and_region() -> None:
    def identity(region: str = "eu-west-1", **changes: str) -> str:
        source = {"swf": {**SWF, **changes}}
        return parse_spec({**MINIMAL, "activityArn": None, "source": source, "aws": {"region": region}}).identity(
            "team"
        )

    assert identity() == identity()
    assert len({identity(), identity("us-east-1"), identity(domain="books"), identity(taskList="letters")}) == 4


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"redis": REDIS}, {"redis": {**REDIS, "lockSeconds": 9}}, True),
        ({"redis": REDIS}, {"redis": {**REDIS, "queue": "crop"}}, False),
        ({"redis": REDIS}, {"redis": {**REDIS, "flow": "films"}}, False),
        ({"redis": REDIS}, {"redis": {**REDIS, "address": "redis:6380"}}, False),
        ({"taskStore": {**STORE, "tasks": ["a", "b"]}}, {"taskStore": {**STORE, "tasks": ["b", "a"]}}, True),
        ({"taskStore": STORE}, {"taskStore": {**STORE, "tasks": ["a"]}}, False),
        ({"taskStore": STORE}, {"taskStore": {"url": "postgresql://db/tasks"}}, False),
        ({"stepFunctions": {"activityArn": GOOD_ARN}}, {"redis": REDIS}, False),
    ],
)
def test_pools_share_an_identity_when_their_workers_take_the_same_tasks(
    one: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    assert (counted_spec(**one).identity("team") == counted_spec(**other).identity("team")) is same


def test_identity_includes_the_namespace_only_for_a_secret() -> None:
    assert counted_spec(taskStore=STORE).identity("a") != counted_spec(taskStore=STORE).identity("b")
    assert counted_spec(redis=REDIS).identity("a") == counted_spec(redis=REDIS).identity("b")


def test_prometheus_query_runs_every_15_seconds_by_default() -> None:
    query = {"serverUrl": "http://prometheus:9090", "query": "sum(waiting) or vector(0)"}
    spec = parse_spec({**MINIMAL, "scaling": {"prometheus": query}})

    assert spec.scaling.prometheus is not None
    assert (spec.scaling.prometheus.interval_seconds, spec.scaling.prometheus.token_secret_ref) == (15, None)
    assert parse_spec(MINIMAL).scaling.prometheus is None


def test_replicas_above_max_workers_are_accepted() -> None:
    assert parse_spec({**MINIMAL, "replicas": 50}).replicas == 50


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("source", {"source": {"stepFunctions": {"activityArn": GOOD_ARN}}}),
        ("activityArn", {"activityArn": None}),
        ("source", {"activityArn": None, "source": {}}),
        ("source", {"activityArn": None, "source": {"kafka": {}}}),
        ("source", {"activityArn": None, "source": {"redis": REDIS, "taskStore": STORE}}),
        ("source.redis.flow", {"activityArn": None, "source": {"redis": {"queue": "q", "address": "redis:6379"}}}),
        ("source.redis", {"activityArn": None, "source": {"redis": {"flow": "f", "queue": "q"}}}),
        ("source.taskStore", {"activityArn": None, "source": {"taskStore": {}}}),
        ("source.taskStore", {"activityArn": None, "source": {"taskStore": {**STORE, "url": "postgresql://db/t"}}}),
        ("activation.mode", {"activityArn": None, "source": {"redis": REDIS}, "activation": {"mode": "CloudWatch"}}),
        ("aws.region", {"activityArn": None, "source": {"swf": SWF}}),
        ("source.swf.taskList", {"activityArn": None, "source": {"swf": {"domain": "shop"}}}),
        ("source", {"activityArn": None, "source": {"swf": SWF, "redis": REDIS}}),
        ("scaling.prometheus.query", {"scaling": {"prometheus": {"serverUrl": "http://prometheus:9090"}}}),
        ("activityArn", {"activityArn": "arn:aws:sqs:us-east-1:123456789012:activity:a"}),
        ("source.stepFunctions.activityArn", {"activityArn": None, "source": {"stepFunctions": {"activityArn": "x"}}}),
        ("handlerImage", {"handlerImage": None}),
        ("maxWorkers", {"maxWorkers": None}),
        ("maxWorkers", {"maxWorkers": 0}),
        ("minWorkers", {"minWorkers": 6}),
        ("minWorkers", {"activation": {"mode": "None"}}),
        ("activation.mode", {"activation": {"mode": "Prometheus"}}),
        ("scaling.targetUtilization", {"scaling": {"targetUtilization": 0}}),
        ("scaling.targetUtilization", {"scaling": {"targetUtilization": 1.1}}),
        ("scaling.scaleDown.zeroAfterSeconds", {"scaling": {"scaleDown": {"zeroAfterSeconds": -1}}}),
    ],
)
def test_invalid_value_is_refused_with_its_field(field: str, changes: dict[str, Any]) -> None:
    error = refusal(**changes)

    assert (error.field, error.reason) == (field, Reason.INVALID_SPEC)
    assert str(error).startswith(f"spec.{field}")


def test_message_names_the_value_and_the_fix() -> None:
    assert str(refusal(maxWorkers=0)) == "spec.maxWorkers '0' must be greater than or equal to 1"
    assert str(refusal(minWorkers=9)) == (
        "spec.minWorkers '9' is greater than maxWorkers 5; lower it or raise maxWorkers"
    )


def test_mode_none_is_accepted_with_min_workers_1() -> None:
    assert parse_spec({**MINIMAL, "minWorkers": 1, "activation": {"mode": "None"}}).activation.mode == "None"


def test_mode_cloudwatch_may_go_to_zero() -> None:
    spec = parse_spec({**MINIMAL, "activation": {"mode": "CloudWatch"}, "aws": {"cloudWatchEndpointUrl": "http://a"}})

    assert (spec.activation.mode, spec.min_workers) == ("CloudWatch", 0)
    assert spec.aws.cloud_watch_endpoint_url == "http://a"


def test_long_invalid_value_is_shortened_in_the_message() -> None:
    assert len(str(refusal(handlerImage="x" * 10_000))) < 300


def test_activation_threshold_without_a_count_or_above_zero_is_refused() -> None:
    assert refusal(scaling={"activationThreshold": 5}).field == "scaling.activationThreshold"
    counted = {"activation": {"mode": "CloudWatch"}, "scaling": {"activationThreshold": 5}}
    assert "has no effect above zero" in str(refusal(**counted, minWorkers=1))
    parse_spec({**MINIMAL, **counted})


def test_reserve_above_max_workers_is_refused() -> None:
    assert "is greater than maxWorkers 5" in str(refusal(scaling={"idleWorkers": 6}))


DAY = {"name": "day", "startCron": "0 8 * * 1-5", "endCron": "0 18 * * 1-5", "minWorkers": 2}
ONCE = {"name": "sale", "startTime": "2026-11-27T00:00:00Z", "endTime": "2026-11-28T00:00:00Z", "maxWorkers": 2}


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        ({**DAY, "endCron": None}, "scaling.schedules[day]: needs either startCron and endCron, or startTime and"),
        ({**DAY, **ONCE}, "needs either startCron and endCron, or startTime and endTime"),
        ({**ONCE, "endTime": "2026-11-26T00:00:00Z"}, "schedules[sale].endTime '2026-11-26T00:00:00+00:00' must be"),
        ({**DAY, "minWorkers": None}, "scaling.schedules[day]: needs minWorkers, maxWorkers or both"),
        ({**DAY, "minWorkers": 6}, "[day] '6' has more workers than the pool's maxWorkers"),
        (
            {**DAY, "minWorkers": 3, "maxWorkers": 2},
            "[day].minWorkers '3' is greater than maxWorkers 2 of the schedule",
        ),
        ({**DAY, "timeZone": "Mars/Base"}, "[day].timeZone 'Mars/Base' is no time zone of the IANA database"),
        ({**DAY, "startCron": "61 * * * *"}, "[day].startCron '61 * * * *' is no cron expression (Bad minute)"),
        ({**DAY, "startCron": "0 0 8 * * *"}, "[day].startCron '0 0 8 * * *' is no cron expression of five fields"),
        ({**DAY, "endCron": "0 0 31 2 *"}, "[day].endCron '0 0 31 2 *'"),
    ],
)
def test_unusable_schedule_is_refused_with_field_value_and_fix(schedule: dict[str, Any], sentence: str) -> None:
    given = {name: value for name, value in schedule.items() if value is not None}

    assert sentence in str(refusal(scaling={"schedules": [given]}))


def test_schedules_by_cron_and_by_date_are_accepted() -> None:
    first, second = parse_spec({**MINIMAL, "scaling": {"schedules": [DAY, ONCE]}}).scaling.schedules

    assert (first.time_zone, first.min_workers, first.max_workers) == ("UTC", 2, None)
    assert second.start_time is not None
    assert second.start_time.isoformat() == "2026-11-27T00:00:00+00:00"


def test_schedule_without_workers_needs_something_that_notices_work() -> None:
    refused = refusal(activation={"mode": "None"}, minWorkers=1, scaling={"schedules": [{**DAY, "minWorkers": 0}]})

    assert "must be at least 1 worker with activation.mode None" in str(refused)
