"""Step Functions activities as a source: the client's calls, with its errors as `SourceError`s."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from activity_worker.contract import LeasedTask
from activity_worker.errors import (
    DeniedError,
    InvalidTokenError,
    LeaseLostError,
    MissingError,
    SourceError,
    ThrottledError,
    UnreachableError,
)
from activity_worker.wire.errors import WireError

if TYPE_CHECKING:
    from activity_worker.wire.stepfunctions import StepFunctionsClient

_LOST = frozenset({"TaskTimedOut", "TaskDoesNotExist"})


class StepFunctionsSource:
    """One activity. Many sources may share a client: `close` closes the client only with `owns_client`."""

    #: Any process that has a task's token may conclude the task.
    tokens_travel = True

    def __init__(self, client: "StepFunctionsClient", activity_arn: str, *, owns_client: bool = False) -> None:
        self.name = activity_arn
        self._client = client
        self._owns_client = owns_client

    @property
    def endpoint_url(self) -> str:
        """The URL of the service that the client calls."""
        return self._client.endpoint_url

    async def lease(self, worker_name: str) -> LeasedTask | None:
        """Poll once: up to 60 s on AWS."""
        with translated():
            return await self._client.get_activity_task(self.name, worker_name)

    async def heartbeat(self, token: str) -> None:
        """Send a task heartbeat."""
        with translated():
            await self._client.send_task_heartbeat(token)

    async def succeed(self, token: str, output: str) -> None:
        """Send the task's output."""
        with translated():
            await self._client.send_task_success(token, output)

    async def fail(self, token: str, error: str, cause: str) -> None:
        """Send the task's failure."""
        with translated():
            await self._client.send_task_failure(token, error, cause)

    async def close(self) -> None:
        """Close the client if this source owns it."""
        if self._owns_client:
            await self._client.close()


@contextmanager
def translated() -> Iterator[None]:
    """Raise each `WireError` of the body as a `SourceError`."""
    try:
        yield
    except WireError as error:
        raise translate(error) from error


def translate(error: WireError) -> SourceError:
    """Return the `SourceError` for an error of the client."""
    kind: type[SourceError] = SourceError
    if error.code in _LOST:
        kind = LeaseLostError
    elif error.code == "InvalidToken":
        kind = InvalidTokenError
    elif error.throttled:
        kind = ThrottledError
    elif error.denied:
        kind = DeniedError
    elif error.missing:
        kind = MissingError
    elif error.retryable:
        kind = UnreachableError
    return kind(error.code, error.message)
