"""CloudWatch's calls, and its errors as reasons and messages of conditions."""

from typing import Any

import pytest

from activity_operator.backlog.cloudwatch import CloudWatchReader
from activity_operator.backlog.protocol import PollTarget, SourceProblemError, TimeRange
from activity_operator.core.observation import MetricPeriod
from activity_worker.wire.errors import CredentialsMissingError, EndpointUnreachableError, WireError

ARN = "arn:aws:states:us-east-1:123456789012:activity:resize"
TARGET = PollTarget(ARN)
SPAN = TimeRange(0, 60, 60)


class FakeCaller:
    """Answers each query with one task scheduled at 0, after the given `answers`."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[dict[str, Any]] = []
        self.closed = False

    async def call(self, operation: str, parameters: dict[str, Any], *, timeout_seconds: float) -> dict[str, Any]:
        assert operation == "GetMetricData"
        self.calls.append(parameters)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return dict(answer)
        return {"MetricDataResults": [answered(query["Id"]) for query in parameters["MetricDataQueries"]]}

    async def close(self) -> None:
        self.closed = True


def answered(name: str, code: str = "Complete") -> dict[str, Any]:
    return {"Id": name, "Timestamps": [0.0], "Values": [1.0], "StatusCode": code}


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (
            WireError("AccessDenied", "not authorized", 403),
            "AccessDenied",
            "allow cloudwatch:GetMetricData on * to the operator's own identity, or correct its credentials",
        ),
        (CredentialsMissingError("NoCredentials", "none found"), "AccessDenied", "the operator's own identity"),
        (EndpointUnreachableError("ReadTimeout", "late"), "BackendUnreachable", "spec.aws.cloudWatchEndpointUrl"),
        (WireError("InternalServiceFault", "oops", 500), "BackendUnreachable", "InternalServiceFault: oops"),
        (WireError("Throttling", "Rate exceeded", 400), "Throttled", "higher quota"),
    ],
    ids=lambda value: value.code if isinstance(value, WireError) else None,
)
async def test_failed_read_has_reason_and_fix(error: WireError, reason: str, words: str) -> None:
    service = CloudWatchReader(lambda _: FakeCaller(error))
    with pytest.raises(SourceProblemError) as raised:
        await service.read(TARGET, [ARN], SPAN)

    assert raised.value.reason == reason
    assert words in raised.value.message
    assert raised.value.throttled is error.throttled


async def test_message_names_the_denied_role() -> None:
    service = CloudWatchReader(lambda _: FakeCaller(WireError("AccessDenied", "no", 403)))
    with pytest.raises(SourceProblemError, match="to the role arn:aws:iam::1:role/r"):
        await service.read(PollTarget(ARN, role_arn="arn:aws:iam::1:role/r"), [ARN], SPAN)


async def test_600_activities_take_three_calls_of_at_most_500_queries() -> None:
    caller = FakeCaller()
    arns = [f"{ARN}-{number}" for number in range(600)]
    found = await CloudWatchReader(lambda _: caller).read(TARGET, arns, SPAN)

    assert [len(call["MetricDataQueries"]) for call in caller.calls] == [500, 500, 200]
    assert found == {arn: (MetricPeriod(0, 60, 1, 1),) for arn in arns}


async def test_all_pages_of_an_answer_are_read() -> None:
    first = {"MetricDataResults": [answered("activitiesScheduled_0", "PartialData")], "NextToken": "two"}
    caller = FakeCaller(first)
    found = await CloudWatchReader(lambda _: caller).read(TARGET, [ARN], SPAN)

    assert [call.get("NextToken") for call in caller.calls] == [None, "two"]
    assert found == {ARN: (MetricPeriod(0, 60, 1, 1),)}


async def test_endless_paging_is_given_up() -> None:
    endless = {"MetricDataResults": [answered("activitiesScheduled_0", "PartialData")], "NextToken": "more"}
    caller = FakeCaller(*[endless] * 50)
    found = await CloudWatchReader(lambda _: caller).read(TARGET, [ARN], SPAN)

    assert len(caller.calls) == 10
    assert isinstance(found[ARN], SourceProblemError)


async def test_every_call_is_observed() -> None:
    observed: list[tuple[str, int, str]] = []
    service = CloudWatchReader(
        lambda _: FakeCaller(WireError("Throttling", "slow", 400)), lambda *call: observed.append((call[0], *call[1:3]))
    )
    with pytest.raises(SourceProblemError):
        await service.read(TARGET, [ARN], SPAN)
    await service.read(TARGET, [ARN], SPAN)

    assert observed == [("GetMetricData", 400, "throttled"), ("GetMetricData", 200, "ok")]


async def test_closing_closes_every_caller() -> None:
    caller = FakeCaller()
    service = CloudWatchReader(lambda _: caller)
    await service.read(TARGET, [ARN], SPAN)
    await service.close()

    assert caller.closed
