"""Step Functions' errors as reasons and messages of conditions, and one client per region, endpoint and role."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from activity_operator.backlog.call_metrics import observe_call
from activity_operator.backlog.protocol import PollTarget, SourceProblemError, TaskOverError, TokenRefusedError
from activity_operator.backlog.stepfunctions import StepFunctions
from activity_worker.contract import LeasedTask
from activity_worker.wire.errors import CredentialsMissingError, EndpointUnreachableError, WireError
from tests.unit.activity_operator.backlog.fakes import AnsweringClient

ARN = "arn:aws:states:us-east-1:123456789012:activity:resize"
TARGET = PollTarget(ARN)


class FakeClient(AnsweringClient):
    """The calls of the operator."""

    async def get_activity_task(self, activity_arn: str, worker_name: str) -> Any:
        return await self._answer("poll", activity_arn, worker_name)

    async def describe_activity(self, activity_arn: str) -> None:
        await self._answer("describe", activity_arn)

    async def send_task_heartbeat(self, task_token: str) -> None:
        await self._answer("heartbeat", task_token)

    async def send_task_failure(self, task_token: str, error: str = "", cause: str = "") -> None:
        await self._answer("fail", task_token, error, cause)


def service(answer: Any = None) -> StepFunctions:
    return StepFunctions("operator-1", lambda target: FakeClient(answer))


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (WireError("AccessDeniedException", "not authorized", 400), "AccessDenied", "allow states:GetActivityTask on"),
        (CredentialsMissingError("NoCredentials", "none found"), "AccessDenied", "the operator's own identity"),
        (WireError("ActivityDoesNotExist", "no", 400), "ActivityNotFound", "does not exist in us-east-1: create it"),
        (WireError("InvalidArn", "no", 400), "ActivityNotFound", "spec.aws.region"),
        (EndpointUnreachableError("EndpointUnreachable", "refused"), "BackendUnreachable", "spec.aws.endpointUrl"),
        (WireError("InternalFailure", "oops", 500), "BackendUnreachable", "InternalFailure: oops"),
        (WireError("ThrottlingException", "slow", 400), "Throttled", "higher quota"),
        (WireError("ActivityWorkerLimitExceeded", "many", 400), "Throttled", "lower maxWorkers"),
    ],
    ids=lambda value: value.code if isinstance(value, WireError) else None,
)
async def test_failed_poll_has_reason_and_fix(error: WireError, reason: str, words: str) -> None:
    with pytest.raises(SourceProblemError) as raised:
        await service(error).poll(TARGET)

    assert raised.value.reason == reason
    assert words in raised.value.message
    assert raised.value.throttled is error.throttled


OTHER = "arn:aws:iam::210987654321:role/operator"
REFUSED = "User: arn:aws:sts::210987654321:assumed-role/operator/x is not authorized to perform: states:X"


@pytest.mark.parametrize(
    ("error", "target", "reason", "words"),
    [
        (None, TARGET, "", ""),
        (WireError("AccessDeniedException", "no", 400), TARGET, "AccessDenied", "allow states:DescribeActivity on arn"),
        (
            WireError("AccessDeniedException", REFUSED, 400),
            TARGET,
            "WrongAccount",
            f"identity is of account 210987654321, and the activity {ARN} of account 123456789012: name a role of that",
        ),
        (
            WireError("AccessDeniedException", "no", 400),
            PollTarget(ARN, role_arn=OTHER),
            "WrongAccount",
            f"the role {OTHER} is of account 210987654321",
        ),
        (
            CredentialsMissingError("AccessDenied", f"while assuming a role: {REFUSED}", 403),
            PollTarget(ARN, role_arn=OTHER),
            "AccessDenied",
            "or correct its credentials",
        ),
        (WireError("ActivityDoesNotExist", "no", 400), TARGET, "ActivityNotFound", "does not exist in us-east-1"),
        (
            WireError("ActivityDoesNotExist", "no", 400),
            PollTarget(ARN, "eu-west-1"),
            "WrongRegion",
            "is of region us-east-1 and does not exist in eu-west-1: correct spec.aws.region",
        ),
        (WireError("InvalidArn", "no", 400), PollTarget(ARN, "eu-west-1"), "WrongRegion", "correct spec.aws.region"),
    ],
    ids=["fine", "denied", "other account", "role of another account", "no role", "missing", "other region", "refused"],
)
async def test_question_for_an_activity_has_reason_and_fix(
    error: WireError | None, target: PollTarget, reason: str, words: str
) -> None:
    if error is None:
        await service().describe(target)
        return
    with pytest.raises(SourceProblemError) as raised:
        await service(error).describe(target)

    assert raised.value.reason == reason
    assert words in raised.value.message


async def test_request_id_is_removed_from_the_message() -> None:
    texts = []
    for number in (1, 2):
        text = f"denied (Request ID: 0000000{number}-1111-2222-3333-444444444444)"
        with pytest.raises(SourceProblemError) as raised:
            await service(WireError("AccessDeniedException", text, 400)).poll(TARGET)
        texts.append(raised.value.message)

    assert texts[0] == texts[1]


@pytest.mark.parametrize("code", ["TaskTimedOut", "TaskDoesNotExist"])
async def test_expired_token_means_that_the_task_is_over(code: str) -> None:
    with pytest.raises(TaskOverError, match=code):
        await service(WireError(code, "gone", 400)).heartbeat(TARGET, "t1")
    with pytest.raises(TaskOverError, match=code):
        await service(WireError(code, "gone", 400)).fail(TARGET, "t1", "Error", "cause")


async def test_invalid_token_does_not_mean_that_the_task_is_over() -> None:
    with pytest.raises(TokenRefusedError):
        await service(WireError("InvalidToken", "no", 400)).heartbeat(TARGET, "t1")


async def test_poll_returns_a_task_or_none() -> None:
    assert await service(LeasedTask("t1", "{}")).poll(TARGET) == LeasedTask("t1", "{}")
    assert await service().poll(TARGET) is None


async def test_worker_name_has_at_most_80_characters() -> None:
    client = FakeClient()
    operator = StepFunctions("x" * 100, lambda target: client)
    await operator.poll(TARGET)

    assert client.calls == [("poll", ARN, "activitypool-operator/" + "x" * 58)]
    assert len(operator.worker_name) == 80


async def test_pools_with_equal_region_endpoint_and_role_share_a_client() -> None:
    opened: list[PollTarget] = []

    def open_client(target: PollTarget) -> FakeClient:
        opened.append(target)
        return FakeClient()

    operator = StepFunctions("operator-1", open_client)
    others = [PollTarget(ARN + "-2"), PollTarget(ARN, role_arn="arn:role"), PollTarget(ARN, region="eu-west-1")]
    await asyncio.gather(*(operator.poll(target) for target in [TARGET, *others, TARGET]))

    assert sorted((target.region, target.role_arn) for target in opened) == [
        ("eu-west-1", ""),
        ("us-east-1", ""),
        ("us-east-1", "arn:role"),
    ]


async def test_client_that_cannot_be_opened_is_an_error_and_is_retried() -> None:
    answers: list[Any] = [ValueError("no such profile"), FakeClient()]

    def open_client(target: PollTarget) -> FakeClient:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        client: FakeClient = answer
        return client

    operator = StepFunctions("operator-1", open_client)
    with pytest.raises(SourceProblemError, match="no such profile"):
        await operator.poll(TARGET)

    assert await operator.poll(TARGET) is None


async def test_closing_closes_every_client() -> None:
    client = FakeClient()
    operator = StepFunctions("operator-1", lambda target: client)
    await operator.poll(TARGET)
    await operator.close()

    assert client.closed


@pytest.mark.parametrize(
    ("answer", "code", "outcome"),
    [
        (None, 200, "ok"),
        (WireError("ThrottlingException", "slow", 400), 400, "throttled"),
        (WireError("AccessDeniedException", "no", 400), 400, "denied"),
        (CredentialsMissingError("NoCredentials", "none found"), 0, "denied"),
        (WireError("ActivityDoesNotExist", "no", 400), 400, "missing"),
        (EndpointUnreachableError("ReadTimeout", "no answer"), 0, "unreachable"),
        (WireError("InternalFailure", "oops", 500), 500, "failed"),
        (WireError("SomethingOfItsOwn", "what", 418), 418, "refused"),
    ],
    ids=lambda value: value.code if isinstance(value, WireError) else None,
)
async def test_every_call_is_observed_with_its_outcome(answer: Any, code: int, outcome: str) -> None:
    observed: list[tuple[str, int, str]] = []
    operator = service(answer)
    operator.observed = lambda operation, status, end, seconds: observed.append((operation, status, end))
    with suppress(SourceProblemError):
        await operator.poll(TARGET)
    with suppress(SourceProblemError):
        await operator.heartbeat(TARGET, "t1")
    with suppress(SourceProblemError):
        await operator.fail(TARGET, "t1", "Error", "cause")

    names = ("GetActivityTask", "SendTaskHeartbeat", "SendTaskFailure")
    assert observed == [(name, code, outcome) for name in names]


async def test_observed_duration_is_the_duration_of_the_call() -> None:
    class Slow(FakeClient):
        async def get_activity_task(self, activity_arn: str, worker_name: str) -> Any:
            await asyncio.sleep(59.0)

    observed: list[float] = []
    loop = asyncio.get_running_loop()
    with observe_call(lambda *call: observed.append(call[3]), "GetActivityTask", loop.time):
        await Slow().get_activity_task(ARN, "w")

    assert observed == [59.0]
