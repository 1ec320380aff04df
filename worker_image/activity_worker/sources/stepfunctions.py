"""Step Functions activities as a source: the client's calls, with its errors as `SourceError`s."""

from typing import TYPE_CHECKING

from activity_worker.contract import LeasedTask
from activity_worker.errors import SourceError
from activity_worker.sources.task_service import TaskServiceSource, source_error, translated
from activity_worker.wire.errors import WireError

if TYPE_CHECKING:
    from activity_worker.wire.stepfunctions import StepFunctionsClient

_LOST = frozenset({"TaskTimedOut", "TaskDoesNotExist"})


class StepFunctionsSource(TaskServiceSource["StepFunctionsClient"]):
    """One activity. Many sources may share a client: `close` closes the client only with `owns_client`."""

    def __init__(self, client: "StepFunctionsClient", activity_arn: str, *, owns_client: bool = False) -> None:
        super().__init__(activity_arn, client, owns_client=owns_client)

    async def lease(self, worker_name: str) -> LeasedTask | None:
        """Poll once: up to 60 s on AWS."""
        with translated(translate):
            return await self._client.get_activity_task(self.name, worker_name)

    async def heartbeat(self, token: str) -> None:
        """Send a task heartbeat."""
        with translated(translate):
            await self._client.send_task_heartbeat(token)

    async def succeed(self, token: str, output: str) -> None:
        """Send the task's output."""
        with translated(translate):
            await self._client.send_task_success(token, output)

    async def fail(self, token: str, error: str, cause: str) -> None:
        """Send the task's failure."""
        with translated(translate):
            await self._client.send_task_failure(token, error, cause)


def translate(error: WireError) -> SourceError:
    """Return the `SourceError` for an error of the client."""
    return source_error(error, lost=error.code in _LOST, invalid_token=error.code == "InvalidToken")
