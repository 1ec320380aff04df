"""PURE: the requests for activity metrics to CloudWatch, and the parsing of the answers' pages.

Step Functions publishes ActivitiesScheduled and ActivitiesStarted for each activity (namespace AWS/States, dimension
ActivityArn). Its other metrics count tasks that a worker took, because an activity's time-outs run from its start.
Metrics arrive a few minutes late, on a best-effort basis. A minute without events has no data point.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from activity_operator.backlog.protocol import SourceProblemError, TimeRange
from activity_operator.core.observation import MetricPeriod

NAMESPACE = "AWS/States"
DIMENSION = "ActivityArn"
SCHEDULED = "ActivitiesScheduled"
STARTED = "ActivitiesStarted"
#: The service's limit of queries per call; each activity needs two.
MAX_QUERIES = 500
MAX_ACTIVITIES = MAX_QUERIES // 2

MINUTE_SECONDS = 60
HOUR_SECONDS = 3600
#: How far back a pool's metrics are read, so that tasks which wait since a pause or an outage are found.
PAST_SECONDS = 7 * 24 * HOUR_SECONDS
#: The last one to two hours are read by the minute. Data points that arrive later are found when their hour is read.
RECENT_HOURS = 1


def recent(now: float) -> TimeRange:
    """Return the last one to two hours up to and including the current minute, in periods of a minute."""
    start = (int(now) // HOUR_SECONDS - RECENT_HOURS) * HOUR_SECONDS
    return TimeRange(start, (int(now) // MINUTE_SECONDS + 1) * MINUTE_SECONDS, MINUTE_SECONDS)


def past(now: float) -> TimeRange:
    """Return the week before `recent`, in periods of an hour."""
    end = recent(now).start
    return TimeRange(end - PAST_SECONDS, end, HOUR_SECONDS)


def batches(arns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the activities in groups that fit into a call."""
    for first in range(0, len(arns), MAX_ACTIVITIES):
        yield tuple(arns[first : first + MAX_ACTIVITIES])


def request(arns: Sequence[str], span: TimeRange, token: str = "") -> dict[str, Any]:
    """Return the parameters of a call for the first page, or for the page of `token`."""
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
    """Return the query's ID; CloudWatch requires a lower-case first letter."""
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
        """Add one page; return the token of the next page, or "" after the last one."""
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
        """Return each activity's periods with the tasks scheduled and started, or why the metrics are missing."""
        return {arn: self._problem(number) or self._flows(number) for number, arn in enumerate(self._arns)}

    def _flows(self, number: int) -> tuple[MetricPeriod, ...]:
        came = self._values.get(_id(SCHEDULED, number), {})
        went = self._values.get(_id(STARTED, number), {})
        return tuple(
            MetricPeriod(at, self._span.period, round(came.get(at, 0)), round(went.get(at, 0)))
            for at in sorted(came.keys() | went.keys())
        )

    def _problem(self, number: int) -> SourceProblemError | None:
        """Return why one of the two metrics is incomplete, or None. Incomplete means unknown, which is not zero."""
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
