"""Amazon SWF as a source: its errors in the runtime's words, and its limits."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from activity_worker.errors import (
    DeniedError,
    InvalidTokenError,
    LeaseLostError,
    MissingError,
    OutputTooLargeError,
    SourceError,
    ThrottledError,
    UnreachableError,
)
from activity_worker.sources.protocol import CancellableSource
from activity_worker.sources.swf import SwfSource
from activity_worker.wire.errors import EndpointUnreachableError, WireError
from activity_worker.wire.swf import ActivityDefaults, SwfClient

NO_TYPE = WireError("TypeAlreadyExistsFault", "ActivityType=[name=charge, version=1]", 400)


class Caller:
    """Answers every call with the next of these: an error to raise, or an answer."""

    def __init__(self, *answers: WireError | dict[str, Any]) -> None:
        self._answers = list(answers)
        self.calls: list[str] = []

    async def call(self, operation: str, parameters: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.calls.append(operation)
        answer = self._answers.pop(0) if self._answers else {}
        if isinstance(answer, WireError):
            raise answer
        return answer


def source_of(*answers: WireError | dict[str, Any]) -> SwfSource:
    return SwfSource(SwfClient(Caller(*answers)), "shop", "charges")  # type: ignore[arg-type]  # it is called like one


def error(code: str, message: str = "", status: int = 400) -> WireError:
    return WireError(code, message, status)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (error("UnknownResourceFault", "Unknown domain: shop"), MissingError),
        (error("OperationNotPermittedFault"), DeniedError),
        (error("ThrottlingException"), ThrottledError),
        (error("LimitExceededFault"), ThrottledError),
        (error("InternalFailure", status=500), UnreachableError),
        (EndpointUnreachableError("ReadTimeout", "no answer"), UnreachableError),
        (error("ValidationException", "1 validation error"), SourceError),
    ],
)
async def test_refused_poll_tells_what_to_repair(raised: WireError, kind: type[SourceError]) -> None:
    with pytest.raises(SourceError) as caught:
        await source_of(raised).lease("w")

    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (error("UnknownResourceFault", "Unknown activity, scheduledEventId = 5"), LeaseLostError),
        (error("ValidationException", "Invalid token"), InvalidTokenError),
        (error("ThrottlingException"), ThrottledError),
    ],
)
async def test_refused_call_about_a_task_tells_whether_the_lease_is_lost(
    raised: WireError, kind: type[SourceError]
) -> None:
    calls: list[Callable[[SwfSource], Awaitable[object]]] = [
        lambda source: source.heartbeat("one"),
        lambda source: source.heartbeat_with("one", "40 %"),
        lambda source: source.succeed("one", "3"),
        lambda source: source.fail("one", "Broken", "why"),
        lambda source: source.confirm_cancellation("one", "half done"),
    ]
    for call in calls:
        with pytest.raises(SourceError) as caught:
            await call(source_of(raised))
        assert type(caught.value) is kind


async def test_result_over_the_limit_is_refused_before_it_is_sent() -> None:
    source = source_of()

    with pytest.raises(OutputTooLargeError, match="32769 characters, the limit of Amazon SWF is 32768"):
        await source.succeed("one", "x" * 32_769)
    await source.succeed("one", "é" * 32_768)

    assert source._client._caller.calls == ["RespondActivityTaskCompleted"]  # type: ignore[attr-defined]


async def test_heartbeat_passes_on_a_request_to_cancel() -> None:
    source = source_of({"cancelRequested": False}, {"cancelRequested": True})

    assert [await source.heartbeat_with("one", "") for _ in range(2)] == [False, True]


async def test_types_that_exist_are_not_registered_again() -> None:
    source = source_of(NO_TYPE, {})

    added = await source.register([("charge", "1"), ("charge", "2")], ActivityDefaults())

    assert added == [("charge", "2")]


async def test_registration_that_is_denied_raises() -> None:
    with pytest.raises(DeniedError):
        await source_of(error("OperationNotPermittedFault")).register([("charge", "1")], ActivityDefaults())


def test_source_can_be_asked_for_cancellations() -> None:
    source = source_of()
    assert isinstance(source, CancellableSource)
    assert source.name == "shop/charges"
