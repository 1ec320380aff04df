"""The Amazon SWF calls of an activity worker, and of the operator that counts a task list and polls it.

PollForActivityTask is a long poll: the service holds it for up to 60 s and asks for a read time-out of at least 70 s.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from activity_worker.contract import LeasedTask, ScheduledActivity
from activity_worker.wire.errors import WireError
from activity_worker.wire.task_client import TaskServiceClient

#: The service's limits, in characters.
MAX_IDENTITY_LENGTH: Final = 256
MAX_RESULT_LENGTH: Final = 32_768
MAX_REASON_LENGTH: Final = 256
MAX_DETAILS_LENGTH: Final = 32_768

#: The code for a domain, a type, an execution or a task that does not exist. A task that has timed out is one.
UNKNOWN_RESOURCE: Final = "UnknownResourceFault"
#: The code for an activity type that is registered already.
TYPE_EXISTS: Final = "TypeAlreadyExistsFault"


@dataclass(frozen=True, slots=True)
class PendingCount:
    """How many tasks wait in a list, by the service's estimate. `truncated`: there are more than `count`."""

    count: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class ActivityDefaults:
    """What a registered activity type gives to tasks for which the decider names nothing else.

    Each time-out is in whole seconds (0 or more), or None for no time-out. `task_list` is "" for no default list.
    """

    schedule_to_start_seconds: int | None = None
    start_to_close_seconds: int | None = None
    schedule_to_close_seconds: int | None = None
    heartbeat_seconds: int | None = None
    task_list: str = ""

    def to_parameters(self) -> dict[str, Any]:
        """Return the parameters of RegisterActivityType; a missing time-out is `NONE` there."""
        seconds = {
            "defaultTaskScheduleToStartTimeout": self.schedule_to_start_seconds,
            "defaultTaskStartToCloseTimeout": self.start_to_close_seconds,
            "defaultTaskScheduleToCloseTimeout": self.schedule_to_close_seconds,
            "defaultTaskHeartbeatTimeout": self.heartbeat_seconds,
        }
        parameters: dict[str, Any] = {name: "NONE" if value is None else str(value) for name, value in seconds.items()}
        if self.task_list:
            parameters["defaultTaskList"] = {"name": self.task_list}
        return parameters


class SwfClient(TaskServiceClient):
    """Amazon SWF over one pool of connections. Make it with `open`, end it with `close`.

    Every method raises WireError (see `wire.errors` for its kinds) and tries once.
    """

    service = "swf"
    target_prefix = "SimpleWorkflowService"
    min_read_timeout_seconds = 70.0

    async def poll_for_activity_task(self, domain: str, task_list: str, identity: str = "") -> LeasedTask | None:
        """Poll once, for up to a minute. None: no task came. `identity` is cut to 256 characters."""
        parameters: dict[str, Any] = {"domain": domain, "taskList": {"name": task_list}}
        if identity:
            parameters["identity"] = identity[:MAX_IDENTITY_LENGTH]
        return _task(await self._poll("PollForActivityTask", parameters))

    async def record_heartbeat(self, task_token: str, details: str = "") -> bool:
        """Keep a task alive; return whether its cancellation is requested. `details`: at most 2,048 characters.

        Raises WireError `UNKNOWN_RESOURCE` when the task has timed out or its execution has ended.
        """
        output = await self._of_task("RecordActivityTaskHeartbeat", task_token, details=details)
        return output.get("cancelRequested") is True

    async def respond_completed(self, task_token: str, result: str = "") -> None:
        """Conclude a task with its result, a text of at most 32,768 characters; an empty one is not sent."""
        await self._of_task("RespondActivityTaskCompleted", task_token, result=result)

    async def respond_failed(self, task_token: str, reason: str = "", details: str = "") -> None:
        """Fail a task. `reason` has at most 256 characters, `details` 32,768; an empty one is not sent."""
        await self._of_task("RespondActivityTaskFailed", task_token, reason=reason, details=details)

    async def respond_canceled(self, task_token: str, details: str = "") -> None:
        """Conclude a task as cancelled, after a heartbeat has asked for it. `details`: at most 32,768 characters."""
        await self._of_task("RespondActivityTaskCanceled", task_token, details=details)

    async def count_pending_activity_tasks(self, domain: str, task_list: str) -> PendingCount:
        """Return how many tasks wait in a list, by the service's estimate. A list that was never used has 0."""
        output = await self._send("CountPendingActivityTasks", {"domain": domain, "taskList": {"name": task_list}})
        count = output.get("count", 0)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise WireError("NotAnAnswer", f"CountPendingActivityTasks: expected a count, got {type(count).__name__}")
        return PendingCount(count, output.get("truncated") is True)

    async def describe_domain(self, domain: str) -> str:
        """Return the domain's status, `REGISTERED` or `DEPRECATED`; raise WireError (`missing`, `denied`)."""
        output = await self._send("DescribeDomain", {"name": domain})
        described = output.get("domainInfo")
        return str(described.get("status", "")) if isinstance(described, Mapping) else ""

    async def register_activity_type(self, domain: str, name: str, version: str, defaults: ActivityDefaults) -> None:
        """Register an activity type. Raises WireError `TYPE_EXISTS` when it is registered already."""
        parameters = {"domain": domain, "name": name, "version": version} | defaults.to_parameters()
        await self._send("RegisterActivityType", parameters)

    async def _of_task(self, operation: str, task_token: str, **texts: str) -> dict[str, Any]:
        """Make a call about a task; an empty text is not sent."""
        given = {name: text for name, text in texts.items() if text}
        return await self._send(operation, {"taskToken": task_token} | given)


def _task(output: Mapping[str, Any]) -> LeasedTask | None:
    """Return the task of a poll's answer; None for an empty answer, whose token is empty or missing."""
    token = output.get("taskToken")
    if not token:
        return None
    kind, execution = output.get("activityType") or {}, output.get("workflowExecution") or {}
    activity = ScheduledActivity(
        name=str(kind.get("name", "")),
        version=str(kind.get("version", "")),
        id=str(output.get("activityId", "")),
        workflow_id=str(execution.get("workflowId", "")),
        run_id=str(execution.get("runId", "")),
    )
    return LeasedTask(str(token), output.get("input") or "", activity)
