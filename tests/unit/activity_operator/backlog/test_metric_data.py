"""Requests to CloudWatch about activities, and the meaning of the pages that it returns."""

import json
from datetime import UTC, datetime
from typing import Any

import botocore.session
import pytest
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from activity_operator.backlog import metric_data
from activity_operator.backlog.cloudwatch import OPERATION, TARGET_PREFIX
from activity_operator.backlog.metric_data import Pages, batches, past, recent, request
from activity_operator.backlog.protocol import SourceProblemError, TimeRange
from activity_operator.core.observation import MetricPeriod

A = "arn:aws:states:us-east-1:123456789012:activity:a"
B = "arn:aws:states:us-east-1:123456789012:activity:b"
SPAN = TimeRange(7200, 10860, 60)


def result(name: str, values: dict[int, float] | None = None, code: str = "Complete", *words: str) -> dict[str, Any]:
    values = values or {}
    messages = [{"Code": "Words", "Value": text} for text in words]
    return {
        "Id": name,
        "Timestamps": list(values),
        "Values": list(values.values()),
        "StatusCode": code,
        "Messages": messages,
    }


def page(*results: dict[str, Any], token: str = "") -> dict[str, Any]:
    return {"MetricDataResults": list(results)} | ({"NextToken": token} if token else {})


@pytest.fixture(scope="module")
def operation() -> Any:
    return botocore.session.Session().get_service_model("cloudwatch").operation_model(OPERATION)


def test_request_equals_the_one_of_botocore(operation: Any) -> None:
    sent = request((A, B), SPAN, "next")
    times = {name: datetime.fromtimestamp(sent[name], UTC) for name in ("StartTime", "EndTime")}
    of_botocore = create_serializer("json").serialize_to_request(sent | times, operation)

    assert json.loads(of_botocore["body"]) == sent
    assert of_botocore["headers"]["X-Amz-Target"] == f"{TARGET_PREFIX}.{OPERATION}"
    assert of_botocore["headers"]["Content-Type"] == "application/x-amz-json-1.0"
    assert "json" in operation.service_model.metadata["protocols"]


def test_answer_is_parsed_as_by_botocore(operation: Any) -> None:
    body = page(result("activitiesScheduled_0", {7200: 3.0}), result("activitiesStarted_0", {7260: 1.0}))
    answer = {"status_code": 200, "headers": {}, "body": json.dumps(body).encode()}
    of_botocore = create_parser("json").parse(answer, operation.output_shape)["MetricDataResults"]
    pages = Pages((A,), SPAN)
    pages.take(body)

    assert [(int(each["Timestamps"][0].timestamp()), each["Values"][0]) for each in of_botocore] == [
        (7200, 3.0),
        (7260, 1),
    ]
    assert pages.flows() == {A: (MetricPeriod(7200, 60, 3, 0), MetricPeriod(7260, 60, 0, 1))}


def test_request_has_two_sums_per_activity() -> None:
    queries = request((A, B), SPAN)["MetricDataQueries"]

    stats = [query["MetricStat"] for query in queries]
    assert [(stat["Metric"]["MetricName"], stat["Metric"]["Dimensions"][0]["Value"]) for stat in stats] == [
        ("ActivitiesScheduled", A),
        ("ActivitiesStarted", A),
        ("ActivitiesScheduled", B),
        ("ActivitiesStarted", B),
    ]
    assert {(stat["Metric"]["Namespace"], stat["Stat"], stat["Period"]) for stat in stats} == {
        ("AWS/States", "Sum", 60)
    }
    assert len({query["Id"] for query in queries}) == 4


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (250, [250]), (251, [250, 1]), (600, [250, 250, 100])])
def test_calls_stay_within_500_queries(count: int, sizes: list[int]) -> None:
    arns = [f"{A}{number}" for number in range(count)]
    groups = list(batches(arns))

    assert [len(group) for group in groups] == sizes
    assert [arn for group in groups for arn in group] == arns
    assert all(len(request(group, SPAN)["MetricDataQueries"]) <= 500 for group in groups)


@pytest.mark.parametrize("minute", [0, 1, 59])
def test_minutes_follow_the_hours_without_a_gap_and_stay_within_two_hours(minute: int) -> None:
    now = 1_000_000 * 3600 + minute * 60 + 17.5

    assert past(now).end == recent(now).start
    assert 3600 <= now - recent(now).start <= 2 * 3600
    assert now < recent(now).end <= now + 60
    assert past(now).end - past(now).start == 7 * 24 * 3600
    for span in (past(now), recent(now)):
        assert span.start % span.period == span.end % span.period == 0
    points = (recent(now).end - recent(now).start) // 60 * metric_data.MAX_QUERIES
    assert points <= 100_800, "one call does not fit into one page"


def test_pages_are_joined() -> None:
    pages = Pages((A,), SPAN)

    assert pages.take(page(result("activitiesScheduled_0", {7200: 1.0}, "PartialData"), token="two")) == "two"
    assert pages.take(page(result("activitiesScheduled_0", {7260: 2.0}), result("activitiesStarted_0", {}))) == ""
    assert pages.flows() == {A: (MetricPeriod(7200, 60, 1, 0), MetricPeriod(7260, 60, 2, 0))}


@pytest.mark.parametrize(
    ("started", "reason", "words"),
    [
        (result("activitiesStarted_0", {}, "PartialData"), "BackendUnreachable", "ActivitiesStarted: PartialData"),
        (result("activitiesStarted_0", {}, "InternalError", "try later"), "BackendUnreachable", "try later"),
        (result("activitiesStarted_0", {}, "Forbidden"), "AccessDenied", "allow cloudwatch:GetMetricData on *"),
        (result("somethingElse_0"), "BackendUnreachable", "ActivitiesStarted: missing"),
    ],
    ids=["partial", "error", "forbidden", "missing"],
)
def test_incomplete_answer_about_one_activity_is_its_own_error(
    started: dict[str, Any], reason: str, words: str
) -> None:
    pages = Pages((A, B), SPAN)
    scheduled = result("activitiesScheduled_0", {7200: 3.0})
    pages.take(page(scheduled, started, result("activitiesScheduled_1"), result("activitiesStarted_1")))
    flows = pages.flows()

    assert flows[B] == ()
    problem = flows[A]
    assert isinstance(problem, SourceProblemError)
    assert problem.reason == reason
    assert words in problem.message
