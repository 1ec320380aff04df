"""The library: heartbeats and conclusions of tasks of Amazon SWF and of Step Functions, by their tokens."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from activity_worker.errors import CancellationNotRequestedError, DeniedError
from activity_worker.runtime.encoding import (
    MAX_CANCELLATION_DETAILS_BYTES,
    MAX_CAUSE_BYTES,
    MAX_HEARTBEAT_DETAILS_BYTES,
    encode_details,
    encode_output,
    trim,
    trim_error,
)
from activity_worker.runtime.task_run import conclude
from activity_worker.sources.protocol import CancellableSource, Source
from activity_worker.sources.stepfunctions import StepFunctionsSource
from activity_worker.sources.swf import SwfSource
from activity_worker.wire.stepfunctions import StepFunctionsClient
from activity_worker.wire.swf import SwfClient

#: How long an answer that the service cannot take is tried again, in seconds.
CONCLUDE_FOR_SECONDS = 60.0


class Conclusions:
    """Concludes tasks of one service and region. Make it with `of_swf` or `of_step_functions`, end it with `close`.

    Every method raises `LeaseLostError` if the task has timed out or is concluded already, and the service's other
    refusals as `SourceError`. A conclusion that the service cannot take now is tried again for
    `conclude_for_seconds`.
    """

    def __init__(self, source: Source, *, conclude_for_seconds: float = CONCLUDE_FOR_SECONDS) -> None:
        self._source = source
        self._conclude_for_seconds = conclude_for_seconds

    @classmethod
    def of_swf(cls, *, region: str | None = None, endpoint_url: str | None = None, profile: str | None = None) -> Self:
        """Return one for Amazon SWF; what is not given comes from the environment or the profile."""
        client = SwfClient.open(region=region, endpoint_url=endpoint_url, profile=profile)
        # A token names its task without the domain and the task list.
        return cls(SwfSource(client, "", "", owns_client=True))

    @classmethod
    def of_step_functions(
        cls, *, region: str | None = None, endpoint_url: str | None = None, profile: str | None = None
    ) -> Self:
        """Return one for Step Functions; what is not given comes from the environment or the profile."""
        client = StepFunctionsClient.open(region=region, endpoint_url=endpoint_url, profile=profile)
        return cls(StepFunctionsSource(client, "", owns_client=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def heartbeat(self, token: str, details: Any = None) -> bool:
        """Keep a task alive, and return whether its cancellation is requested (never by Step Functions)."""
        if not isinstance(self._source, CancellableSource):
            await self._source.heartbeat(token)
            return False
        return await self._source.heartbeat_with(token, trim(encode_details(details), MAX_HEARTBEAT_DETAILS_BYTES))

    async def succeed(self, token: str, output: Any = None) -> None:
        """Conclude a task with `output`; raises `OutputNotJsonError` or `OutputTooLargeError`, too."""
        text = encode_output(output)
        await self._conclude(lambda: self._source.succeed(token, text))

    async def fail(self, token: str, error: str = "", cause: str = "") -> None:
        """Conclude a task with a failure; what is longer than the service takes is trimmed, and says so."""
        name, text = trim_error(error), trim(cause, MAX_CAUSE_BYTES)
        await self._conclude(lambda: self._source.fail(token, name, text))

    async def confirm_cancellation(self, token: str, details: str = "") -> None:
        """Conclude a task as cancelled, after `heartbeat` has returned True.

        Raises `CancellationNotRequestedError` for Step Functions, which has no such request.
        """
        source = self._source
        if not isinstance(source, CancellableSource):
            raise CancellationNotRequestedError("Step Functions requests no cancellations; use fail instead")
        text = trim(details, MAX_CANCELLATION_DETAILS_BYTES)
        await self._conclude(lambda: source.confirm_cancellation(token, text))

    async def close(self) -> None:
        """Close the connections."""
        await self._source.close()

    async def _conclude(self, send: Callable[[], Awaitable[None]]) -> None:
        denied: DeniedError | None = None

        async def attempt() -> None:
            nonlocal denied
            try:
                await send()
            except DeniedError as error:
                # A worker waits for its credentials to be repaired. Here somebody waits for the answer.
                denied = error

        await conclude(attempt, lost=lambda: None, for_seconds=self._conclude_for_seconds)
        if denied is not None:
            raise denied
