"""Amazon SWF's errors as reasons and messages of conditions, and the calls that the operator makes."""

from typing import Any

import pytest

from activity_operator.backlog.protocol import PollTarget, SourceProblemError
from activity_operator.backlog.swf import Swf
from activity_worker.wire.errors import CredentialsMissingError, EndpointUnreachableError, WireError
from activity_worker.wire.swf import PendingCount

TARGET = PollTarget("", region="eu-west-1", domain="shop", task_list="invoices")


class FakeClient:
    """Returns or raises the given answer."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.calls: list[tuple[str, ...]] = []
        self.closed = False

    async def _answer(self, *call: str) -> Any:
        self.calls.append(call)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def count_pending_activity_tasks(self, domain: str, task_list: str) -> Any:
        return await self._answer("count", domain, task_list)

    async def describe_domain(self, domain: str) -> Any:
        return await self._answer("describe", domain)

    async def close(self) -> None:
        self.closed = True


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
