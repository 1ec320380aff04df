"""The task services that the operator polls, as one: Amazon SWF for a target with a domain, else Step Functions."""

from activity_operator.backlog.protocol import PollTarget, TaskService
from activity_worker.contract import LeasedTask


class TaskServices:
    """Calls the service of each target."""

    def __init__(self, stepfunctions: TaskService, swf: TaskService) -> None:
        self._stepfunctions = stepfunctions
        self._swf = swf

    async def poll(self, target: PollTarget) -> LeasedTask | None:
        """Wait for a task of the target; never cancel the call."""
        return await self._of(target).poll(target)

    async def heartbeat(self, target: PollTarget, token: str) -> None:
        """Send a task heartbeat."""
        await self._of(target).heartbeat(target, token)

    async def fail(self, target: PollTarget, token: str, error: str, cause: str) -> None:
        """Fail the task."""
        await self._of(target).fail(target, token, error, cause)

    def _of(self, target: PollTarget) -> TaskService:
        return self._swf if target.domain else self._stepfunctions
