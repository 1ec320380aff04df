"""What the sources of AWS's task services have in common: a client, and its errors as `SourceError`s."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

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
    from activity_worker.wire.task_client import TaskServiceClient

Client = TypeVar("Client", bound="TaskServiceClient")


class TaskServiceSource(Generic[Client]):
    """A source over a client. Many sources may share a client: `close` closes the client only with `owns_client`."""

    #: Any process that has a task's token may conclude the task.
    tokens_travel = True

    def __init__(self, name: str, client: Client, *, owns_client: bool) -> None:
        self.name = name
        self._client = client
        self._owns_client = owns_client

    @property
    def endpoint_url(self) -> str:
        """The URL of the service that the client calls."""
        return self._client.endpoint_url

    async def close(self) -> None:
        """Close the client if this source owns it."""
        if self._owns_client:
            await self._client.close()


@contextmanager
def translated(translate: Callable[[WireError], SourceError]) -> Iterator[None]:
    """Raise each `WireError` of the body as the `SourceError` that `translate` returns for it."""
    try:
        yield
    except WireError as error:
        raise translate(error) from error


def source_error(error: WireError, *, lost: bool = False, invalid_token: bool = False) -> SourceError:
    """Return the `SourceError` for an error of a client. `lost`, `invalid_token`: known by its service."""
    kind: type[SourceError] = SourceError
    if lost:
        kind = LeaseLostError
    elif invalid_token:
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
