"""The Amazon SWF calls of an activity worker, and of the operator that counts a task list and polls it.

PollForActivityTask is a long poll: the service holds it for up to 60 s and asks for a read time-out of at least 70 s.
A client that hangs up early can lose a task that was already handed over.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Self

from activity_worker.contract import LeasedTask, ScheduledActivity
from activity_worker.wire.aws import AwsJsonCaller
from activity_worker.wire.errors import WireError

#: The service's limits, in characters.
MAX_IDENTITY_LENGTH: Final = 256
MAX_RESULT_LENGTH: Final = 32_768
MAX_REASON_LENGTH: Final = 256
MAX_DETAILS_LENGTH: Final = 32_768
MAX_HEARTBEAT_DETAILS_LENGTH: Final = 2048

#: The service asks for at least so much.
MIN_READ_TIMEOUT_SECONDS: Final = 70.0
#: For every call that is not a long poll.
CALL_TIMEOUT_SECONDS: Final = 20.0

#: The code for a domain, a type, an execution or a task that does not exist. A task that has timed out is one.
UNKNOWN_RESOURCE: Final = "UnknownResourceFault"
#: The code for a call that the caller's policies do not allow.
NOT_PERMITTED: Final = "OperationNotPermittedFault"
#: The code for an activity type that is registered already.
TYPE_EXISTS: Final = "TypeAlreadyExistsFault"
#: The code for an activity type that is registered and deprecated: no workflow can schedule it any more.
TYPE_DEPRECATED: Final = "TypeDeprecatedFault"


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


class SwfClient:
    """Amazon SWF over one pool of connections. Make it with `open`, end it with `close`.

    Every method raises WireError (see `wire.errors` for its kinds) and tries once.
    """

    def __init__(self, caller: AwsJsonCaller, *, read_timeout_seconds: float = 75.0, max_connections: int = 0) -> None:
        if read_timeout_seconds < MIN_READ_TIMEOUT_SECONDS:
            raise ValueError(
                f"read_timeout_seconds is {read_timeout_seconds:g}; the service holds a poll for 60 s, "
                f"use {MIN_READ_TIMEOUT_SECONDS:g} or more"
            )
        self._caller = caller
        self._read_timeout_seconds = read_timeout_seconds
        self._polls: AbstractAsyncContextManager[Any] = (
            asyncio.Semaphore(max_connections) if max_connections else nullcontext()
        )

    @classmethod
    def open(
        cls,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        profile: str | None = None,
        role_arn: str | None = None,
        external_id: str | None = None,
        session: Any = None,
        read_timeout_seconds: float = 75.0,
        max_connections: int = 0,
    ) -> Self:
        """Return a client; no connection is made and no credentials are looked up before the first call.

        `region` to `session` are those of `AwsJsonCaller.open`. `read_timeout_seconds` is for polls, at least 70.
        `max_connections` bounds the open polls (0: unbounded); other calls never wait for a connection. Blocks for
        about 0.1 s.
        """
        caller = AwsJsonCaller.open(
            "swf",
            target_prefix="SimpleWorkflowService",
            region=region,
            endpoint_url=endpoint_url,
            profile=profile,
            role_arn=role_arn,
            external_id=external_id,
            session=session,
        )
        return cls(caller, read_timeout_seconds=read_timeout_seconds, max_connections=max_connections)

    @property
    def endpoint_url(self) -> str:
        """Where the calls go."""
        return self._caller.endpoint.url

    @property
    def region(self) -> str:
        """The region for which calls are signed."""
        return self._caller.endpoint.region

    async def poll_for_activity_task(self, domain: str, task_list: str, identity: str = "") -> LeasedTask | None:
        """Poll once, for up to a minute. None: no task came. `identity` is cut to 256 characters."""
        parameters: dict[str, Any] = {"domain": domain, "taskList": {"name": task_list}}
        if identity:
            parameters["identity"] = identity[:MAX_IDENTITY_LENGTH]
        async with self._polls:
            output = await self._caller.call(
                "PollForActivityTask", parameters, timeout_seconds=self._read_timeout_seconds
            )
        return _task(output)

    async def record_heartbeat(self, task_token: str, details: str = "") -> bool:
        """Keep a task alive; return whether its cancellation is requested. `details`: at most 2,048 characters.

        Raises WireError `UNKNOWN_RESOURCE` when the task has timed out or its execution has ended.
        """
        output = await self._send("RecordActivityTaskHeartbeat", task_token, details=details)
        return output.get("cancelRequested") is True

    async def respond_completed(self, task_token: str, result: str = "") -> None:
        """Conclude a task with its result, a text of at most 32,768 characters; an empty one is not sent."""
        await self._send("RespondActivityTaskCompleted", task_token, result=result)

    async def respond_failed(self, task_token: str, reason: str = "", details: str = "") -> None:
        """Fail a task. `reason` has at most 256 characters, `details` 32,768; an empty one is not sent."""
        await self._send("RespondActivityTaskFailed", task_token, reason=reason, details=details)

    async def respond_canceled(self, task_token: str, details: str = "") -> None:
        """Conclude a task as cancelled, after a heartbeat has asked for it. `details`: at most 32,768 characters."""
        await self._send("RespondActivityTaskCanceled", task_token, details=details)

    async def count_pending_activity_tasks(self, domain: str, task_list: str) -> PendingCount:
        """Return how many tasks wait in a list, by the service's estimate. A list that was never used has 0."""
        output = await self._call("CountPendingActivityTasks", {"domain": domain, "taskList": {"name": task_list}})
        count = output.get("count", 0)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise WireError("NotAnAnswer", f"CountPendingActivityTasks: expected a count, got {type(count).__name__}")
        return PendingCount(count, output.get("truncated") is True)

    async def describe_domain(self, domain: str) -> str:
        """Return the domain's status, `REGISTERED` or `DEPRECATED`; raise WireError (`missing`, `denied`)."""
        output = await self._call("DescribeDomain", {"name": domain})
        described = output.get("domainInfo")
        return str(described.get("status", "")) if isinstance(described, Mapping) else ""

    async def register_activity_type(self, domain: str, name: str, version: str, defaults: ActivityDefaults) -> None:
        """Register an activity type. Raises WireError `TYPE_EXISTS` when it is registered already."""
        parameters = {"domain": domain, "name": name, "version": version} | defaults.to_parameters()
        await self._call("RegisterActivityType", parameters)

    async def close(self) -> None:
        """Close the connections. Await open polls first: cutting one can lose a task."""
        await self._caller.close()

    async def _send(self, operation: str, task_token: str, **texts: str) -> dict[str, Any]:
        given = {name: text for name, text in texts.items() if text}
        return await self._call(operation, {"taskToken": task_token} | given)

    async def _call(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        return await self._caller.call(
            operation, parameters, timeout_seconds=CALL_TIMEOUT_SECONDS, private=("taskToken",)
        )


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
