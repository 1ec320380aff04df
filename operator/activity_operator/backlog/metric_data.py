"""PURE: what CloudWatch is asked about activities, and what its pages of answers mean.

Step Functions publishes ActivitiesScheduled and ActivitiesStarted for each activity (namespace AWS/States, dimension
ActivityArn). Its other counts tell of tasks that a worker had begun: the time-outs of an activity run from its start.
Delivery is best effort and a few minutes late, and a minute without events has no data point.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from activity_operator.backlog.protocol import SourceProblemError, TimeRange
from activity_operator.core.observation import MetricPeriod

NAMESPACE = "AWS/States"
DIMENSION = "ActivityArn"
SCHEDULED = "ActivitiesScheduled"
STARTED = "ActivitiesStarted"
#: The service's limit of queries in a call; two are asked about each activity.
MAX_QUERIES = 500
MAX_ACTIVITIES = MAX_QUERIES // 2

MINUTE_SECONDS = 60
HOUR_SECONDS = 3600
#: How far back a pool's past is looked at, so that work that waits since a pause or an outage is found.
PAST_SECONDS = 7 * 24 * HOUR_SECONDS
#: Minutes are read from one to two hours back; counts that come later still are found when their hour is read.
RECENT_HOURS = 1


def recent(now: float) -> TimeRange:
    """Return the minutes of the last one to two hours, the present one included."""
    start = (int(now) // HOUR_SECONDS - RECENT_HOURS) * HOUR_SECONDS
    return TimeRange(start, (int(now) // MINUTE_SECONDS + 1) * MINUTE_SECONDS, MINUTE_SECONDS)


def past(now: float) -> TimeRange:
    """Return the hours of the week before those minutes."""
    end = recent(now).start
    return TimeRange(end - PAST_SECONDS, end, HOUR_SECONDS)


def batches(arns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the activities in groups that fit into one call."""
    for first in range(0, len(arns), MAX_ACTIVITIES):
        yield tuple(arns[first : first + MAX_ACTIVITIES])


def request(arns: Sequence[str], span: TimeRange, token: str = "") -> dict[str, Any]:
    """Return the parameters of one call: its first page, or the one that `token` stands for."""
    queries = [query for number, arn in enumerate(arns) for query in _queries(number, arn, span.period)]
    return {
        "MetricDataQueries": queries,
        "StartTime": span.start,
        "EndTime": span.end,
        "ScanBy": "TimestampAscending",
    } | ({"NextToken": token} if token else {})


def _queries(number: int, arn: str, period: int) -> Iterator[dict[str, Any]]:
    for name in (SCHEDULED, STARTED):
        metric = {
            "Namespace": NAMESPACE,
            "MetricName": name,
            "Dimensions": [{"Name": DIMENSION, "Value": arn}],
        }
        yield {"Id": _id(name, number), "MetricStat": {"Metric": metric, "Period": period, "Stat": "Sum"}}


def _id(name: str, number: int) -> str:
    """Return a name for the answer; it has to begin with a small letter."""
    return f"{name[0].lower()}{name[1:]}_{number}"


class Pages:
    """The answers to one request, page by page."""

    def __init__(self, arns: Sequence[str], span: TimeRange) -> None:
        self._arns = tuple(arns)
        self._span = span
        self._values: dict[str, dict[int, float]] = {}
        self._last: dict[str, str] = {}
        self._words: dict[str, str] = {}

    def take(self, output: Mapping[str, Any]) -> str:
        """Take in one page; returns the token of the next, "" after the last."""
        for result in output.get("MetricDataResults") or ():
            name = str(result.get("Id", ""))
            values = self._values.setdefault(name, {})
            pairs = zip(result.get("Timestamps") or (), result.get("Values") or (), strict=False)
            values.update({int(at): float(value) for at, value in pairs})
            self._last[name] = str(result.get("StatusCode", ""))
            for message in result.get("Messages") or ():
                self._words[name] = str(message.get("Value") or message.get("Code") or "")
        return str(output.get("NextToken") or "")

    def flows(self) -> dict[str, tuple[MetricPeriod, ...] | SourceProblemError]:
        """Return what came and what was started by activity, or why its counts are missing."""
        return {arn: self._problem(number) or self._flows(number) for number, arn in enumerate(self._arns)}

    def _flows(self, number: int) -> tuple[MetricPeriod, ...]:
        came = self._values.get(_id(SCHEDULED, number), {})
        went = self._values.get(_id(STARTED, number), {})
        return tuple(
            MetricPeriod(at, self._span.period, round(came.get(at, 0)), round(went.get(at, 0)))
            for at in sorted(came.keys() | went.keys())
        )

    def _problem(self, number: int) -> SourceProblemError | None:
        """Return why one of the two counts is not whole: unknown is not zero."""
        for name in (SCHEDULED, STARTED):
            code = self._last.get(_id(name, number), "missing")
            if code == "Complete":
                continue
            words = self._words.get(_id(name, number), "")
            message = f"{name}: {code}" + (f", {words}" if words else "")
            if code == "Forbidden":
                return SourceProblemError("AccessDenied", f"allow cloudwatch:GetMetricData on * ({message})")
            return SourceProblemError("BackendUnreachable", f"CloudWatch answered without the counts ({message})")
        return None
