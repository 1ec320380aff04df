"""Amazon SWF's errors as reasons and messages of conditions, and the calls that the operator makes."""

from typing import Any

import pytest

from activity_operator.backlog.protocol import PollTarget, SourceProblemError, TaskOverError
from activity_operator.backlog.swf import Swf
from activity_operator.backlog.task_services import TaskServices
from activity_worker.contract import LeasedTask, ScheduledActivity
from activity_worker.wire.errors import CredentialsMissingError, EndpointUnreachableError, WireError
from activity_worker.wire.swf import PendingCount
from tests.unit.activity_operator.backlog.fakes import AnsweringClient

TARGET = PollTarget("", region="eu-west-1", domain="shop", task_list="invoices")


class FakeClient(AnsweringClient):
    """The calls of the operator."""

    async def count_pending_activity_tasks(self, domain: str, task_list: str) -> Any:
        return await self._answer("count", domain, task_list)

    async def describe_domain(self, domain: str) -> Any:
        return await self._answer("describe", domain)

    async def poll_for_activity_task(self, domain: str, task_list: str, identity: str = "") -> Any:
        return await self._answer("poll", domain, task_list, identity)

    async def record_heartbeat(self, task_token: str, details: str = "") -> Any:
        return await self._answer("heartbeat", task_token)

    async def respond_failed(self, task_token: str, reason: str = "", details: str = "") -> None:
        await self._answer("fail", task_token, reason, details)


async def raised_by(error: WireError, target: PollTarget = TARGET, *, describe: bool = False) -> SourceProblemError:
    """Return the problem that the operator sees when the service answers with this error."""
    service = Swf(lambda _: FakeClient(error))
    with pytest.raises(SourceProblemError) as raised:
        await (service.describe(target) if describe else service.count(target))
    await service.close()
    return raised.value


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (
            WireError("OperationNotPermittedFault", "not authorized", 400),
            "AccessDenied",
            "allow swf:CountPendingActivityTasks on the domain shop to the operator's own identity",
        ),
        (CredentialsMissingError("NoCredentials", "none found"), "AccessDenied", "no usable credentials"),
        (
            WireError("UnknownResourceFault", "Unknown domain: shop", 400),
            "DomainNotFound",
            "the domain shop does not exist in eu-west-1: register it, or correct spec.source.swf.domain",
        ),
        (EndpointUnreachableError("EndpointUnreachable", "refused"), "BackendUnreachable", "spec.aws.endpointUrl"),
        (WireError("InternalFailure", "oops", 500), "BackendUnreachable", "InternalFailure: oops"),
        (WireError("ThrottlingException", "slow", 400), "Throttled", "lower swfCountsPerSecond"),
        (WireError("UnknownRegion", "no region", 0), "WrongRegion", "'eu-west-1' is no region of AWS"),
    ],
    ids=lambda value: value.code if isinstance(value, WireError) else None,
)
async def test_failed_count_has_reason_and_fix(error: WireError, reason: str, words: str) -> None:
    problem = await raised_by(error)

    assert problem.reason == reason
    assert words in problem.message
    assert problem.throttled is error.throttled


async def test_problem_of_the_domain_names_the_call_that_found_it() -> None:
    problem = await raised_by(WireError("AccessDeniedException", "no", 400), describe=True)

    assert "allow swf:DescribeDomain on the domain shop" in problem.message


async def test_refused_role_is_named() -> None:
    role = PollTarget("", "eu-west-1", role_arn="arn:aws:iam::123456789012:role/swf", domain="shop", task_list="x")

    assert (
        "to the role arn:aws:iam::123456789012:role/swf"
        in (await raised_by(WireError("AccessDeniedException", "no", 400), role)).message
    )


async def test_request_ids_do_not_change_the_message() -> None:
    first = WireError("InternalFailure", "oops (request id: 01234567-89ab-cdef-0123-456789abcdef)", 500)
    second = WireError("InternalFailure", "oops (request id: 11234567-89ab-cdef-0123-456789abcdef)", 500)

    assert (await raised_by(first)).message == (await raised_by(second)).message


async def test_count_names_domain_and_task_list_and_is_observed() -> None:
    client, seen = FakeClient(PendingCount(4, True)), []
    service = Swf(lambda _: client, lambda operation, code, outcome, _: seen.append((operation, code, outcome)))

    assert await service.count(TARGET) == PendingCount(4, True)
    assert client.calls == [("count", "shop", "invoices")]
    assert seen == [("CountPendingActivityTasks", 200, "ok")]


async def test_poll_names_the_operators_pod_and_returns_the_whole_task() -> None:
    task = LeasedTask("t1", "{}", ScheduledActivity("render-invoice", "1"))
    client = FakeClient(task)

    assert await Swf(lambda _: client, pod_name="operator-1").poll(TARGET) == task
    assert client.calls == [("poll", "shop", "invoices", "activitypool-operator/operator-1")]


async def test_refused_poll_names_its_own_right() -> None:
    with pytest.raises(SourceProblemError) as raised:
        await Swf(lambda _: FakeClient(WireError("OperationNotPermittedFault", "no", 400))).poll(TARGET)

    assert "allow swf:PollForActivityTask on the domain shop" in raised.value.message


async def test_heartbeat_and_failure_of_a_closed_task_say_that_it_is_over() -> None:
    service = Swf(lambda _: FakeClient(WireError("UnknownResourceFault", "Unknown activity", 400)))

    with pytest.raises(TaskOverError):
        await service.heartbeat(TARGET, "t1")
    with pytest.raises(TaskOverError):
        await service.fail(TARGET, "t1", "ActivityPool.Deleted", "gone")


async def test_failure_is_cut_to_the_limits_of_the_service() -> None:
    client = FakeClient()
    await Swf(lambda _: client).fail(TARGET, "t1", "e" * 300, "c" * 40_000)

    assert client.calls == [("fail", "t1", "e" * 256, "c" * 32_768)]


async def test_task_services_call_the_service_of_each_target() -> None:
    swf, other = FakeClient(), FakeClient()
    services = TaskServices(Swf(lambda _: other), Swf(lambda _: swf))
    await services.poll(TARGET)
    await services.heartbeat(TARGET, "t1")
    await services.fail(PollTarget("arn:aws:states:eu-west-1:1:activity:a"), "t2", "e", "c")

    assert [call[0] for call in swf.calls] == ["poll", "heartbeat"]
    assert [call[0] for call in other.calls] == ["fail"]


async def test_all_task_lists_of_a_place_share_one_client() -> None:
    opened: list[PollTarget] = []

    def opens(target: PollTarget) -> FakeClient:
        opened.append(target)
        return FakeClient(PendingCount(0, False))

    service = Swf(opens)
    await service.count(TARGET)
    await service.count(PollTarget("", region="eu-west-1", domain="shop", task_list="letters"))
    await service.describe(PollTarget("", region="eu-west-1", domain="books", task_list="letters"))

    assert opened == [PollTarget("", region="eu-west-1")]
