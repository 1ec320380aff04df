"""Activity tasks of Amazon SWF as a source: the client's calls, and its errors in the runtime's words."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from activity_worker.contract import LeasedTask
from activity_worker.errors import OutputTooLargeError, SourceError
from activity_worker.sources.task_service import TaskServiceSource, source_error, translated
from activity_worker.wire.errors import WireError
from activity_worker.wire.swf import MAX_RESULT_LENGTH, TYPE_EXISTS, UNKNOWN_RESOURCE, ActivityDefaults

if TYPE_CHECKING:
    from activity_worker.wire.swf import SwfClient


class SwfSource(TaskServiceSource["SwfClient"]):
    """One task list of a domain. Many sources may share a client: `close` closes the client only with `owns_client`."""

    def __init__(self, client: "SwfClient", domain: str, task_list: str, *, owns_client: bool = False) -> None:
        super().__init__(f"{domain}/{task_list}", client, owns_client=owns_client)
        self._domain = domain
        self._task_list = task_list

    async def lease(self, worker_name: str) -> LeasedTask | None:
        """Poll once: up to 60 s on AWS."""
        with translated(source_error):
            return await self._client.poll_for_activity_task(self._domain, self._task_list, worker_name)

    async def heartbeat(self, token: str) -> None:
        """Send a task heartbeat without details."""
        await self.heartbeat_with(token, "")

    async def heartbeat_with(self, token: str, details: str) -> bool:
        """Send a task heartbeat; return whether the decider has asked for the task's cancellation."""
        with translated(error_of_task):
            return await self._client.record_heartbeat(token, details)

    async def succeed(self, token: str, output: str) -> None:
        """Send the task's result; raises `OutputTooLargeError`, because a result that is cut is another result."""
        if len(output) > MAX_RESULT_LENGTH:
            raise OutputTooLargeError(
                f"the output has {len(output)} characters, the limit of Amazon SWF is {MAX_RESULT_LENGTH}: "
                "store it elsewhere and return where"
            )
        with translated(error_of_task):
            await self._client.respond_completed(token, output)

    async def fail(self, token: str, error: str, cause: str) -> None:
        """Send the task's failure: its error name as the reason, its cause as the details."""
        with translated(error_of_task):
            await self._client.respond_failed(token, error, cause)

    async def confirm_cancellation(self, token: str, details: str) -> None:
        """Conclude the task as cancelled, after a heartbeat has told that the decider asks for it."""
        with translated(error_of_task):
            await self._client.respond_canceled(token, details)

    async def register(self, types: Iterable[tuple[str, str]], defaults: ActivityDefaults) -> list[tuple[str, str]]:
        """Register the activity types that are not registered yet, and return those."""
        added = []
        for name, version in types:
            try:
                with translated(source_error):
                    await self._client.register_activity_type(self._domain, name, version, defaults)
            except SourceError as error:
                if error.code != TYPE_EXISTS:
                    raise
            else:
                added.append((name, version))
        return added


def error_of_task(error: WireError) -> SourceError:
    """Return the `SourceError` for an error of a call about a task.

    What does not exist is the task there, and the domain in other calls. The service closes a task that times out, and
    one whose execution ends.
    """
    invalid = error.code == "ValidationException" and "token" in error.message.lower()
    return source_error(error, lost=error.code == UNKNOWN_RESOURCE, invalid_token=invalid)
