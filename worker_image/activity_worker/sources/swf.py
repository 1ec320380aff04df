"""Activity tasks of Amazon SWF as a source: the client's calls, and its errors in the runtime's words."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from activity_worker.contract import LeasedTask
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
from activity_worker.wire.errors import WireError
from activity_worker.wire.swf import (
    MAX_RESULT_LENGTH,
    TYPE_EXISTS,
    UNKNOWN_RESOURCE,
    ActivityDefaults,
)

if TYPE_CHECKING:
    from activity_worker.wire.swf import SwfClient


class SwfSource:
    """One task list of a domain. Many sources may share a client: `close` closes the client only with `owns_client`."""

    #: Any process that has a task's token may conclude the task.
    tokens_travel = True

    def __init__(self, client: "SwfClient", domain: str, task_list: str, *, owns_client: bool = False) -> None:
        self.name = f"{domain}/{task_list}"
        self._client = client
        self._domain = domain
        self._task_list = task_list
        self._owns_client = owns_client

    @property
    def endpoint_url(self) -> str:
        """Where the calls go."""
        return self._client.endpoint_url

    async def lease(self, worker_name: str) -> LeasedTask | None:
        """Poll once: up to 60 s on AWS."""
        with translated():
            return await self._client.poll_for_activity_task(self._domain, self._task_list, worker_name)

    async def heartbeat(self, token: str) -> None:
        """Send a task heartbeat without details."""
        await self.heartbeat_with(token, "")

    async def heartbeat_with(self, token: str, details: str) -> bool:
        """Send a task heartbeat; return whether the decider has asked for the task's cancellation."""
        with translated(of_task=True):
            return await self._client.record_heartbeat(token, details)

    async def succeed(self, token: str, output: str) -> None:
        """Send the task's result; raises `OutputTooLargeError`, because a result that is cut is another result."""
        if len(output) > MAX_RESULT_LENGTH:
            raise OutputTooLargeError(
                f"the output has {len(output)} characters, the limit of Amazon SWF is {MAX_RESULT_LENGTH}: "
                "store it elsewhere and return where"
            )
        with translated(of_task=True):
            await self._client.respond_completed(token, output)

    async def fail(self, token: str, error: str, cause: str) -> None:
        """Send the task's failure: its error name as the reason, its cause as the details."""
        with translated(of_task=True):
            await self._client.respond_failed(token, error, cause)

    async def confirm_cancellation(self, token: str, details: str) -> None:
        """Conclude the task as cancelled, after a heartbeat has told that the decider asks for it."""
        with translated(of_task=True):
            await self._client.respond_canceled(token, details)

    async def register(self, types: Iterable[tuple[str, str]], defaults: ActivityDefaults) -> list[tuple[str, str]]:
        """Register the activity types that are not registered yet, and return those."""
        added = []
        for name, version in types:
            try:
                with translated():
                    await self._client.register_activity_type(self._domain, name, version, defaults)
            except SourceError as error:
                if error.code != TYPE_EXISTS:
                    raise
            else:
                added.append((name, version))
        return added

    async def close(self) -> None:
        """Close the client if it is ours."""
        if self._owns_client:
            await self._client.close()


@contextmanager
def translated(*, of_task: bool = False) -> Iterator[None]:
    """Raise `WireError`s as the runtime's `SourceError`s; `of_task`: the call was about a task, by its token."""
    try:
        yield
    except WireError as error:
        raise translate(error, of_task=of_task) from error


def translate(error: WireError, *, of_task: bool) -> SourceError:
    """Return the runtime's error for one of the client.

    What does not exist is the task in a call about a task, and else the domain. SWF closes a task that times out, and
    one whose execution ends.
    """
    kind: type[SourceError] = SourceError
    if of_task and error.code == UNKNOWN_RESOURCE:
        kind = LeaseLostError
    elif of_task and error.code == "ValidationException" and "token" in error.message.lower():
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
