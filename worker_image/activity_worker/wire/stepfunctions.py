"""The Step Functions calls of an activity worker, and of the operator that polls for one.

GetActivityTask is a long poll: the service holds it for up to 60 s, and a client that hangs up early can lose a task
that was already handed over. So it is never cut below 65 s; the other calls end sooner.
"""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Self

from activity_worker.contract import LeasedTask
from activity_worker.wire.aws import AwsJsonCaller

#: The service's limits: characters of a worker's name, bytes of an output, characters of an error's name and cause.
MAX_WORKER_NAME_LENGTH = 80
MAX_OUTPUT_BYTES = 262_144
MAX_ERROR_LENGTH = 256
MAX_CAUSE_LENGTH = 32_768

#: The service holds a poll for 60 s and asks for a read time-out of at least 65 s.
MIN_READ_TIMEOUT_SECONDS = 65.0
#: For every call that is not a long poll.
CALL_TIMEOUT_SECONDS = 20.0


class StepFunctionsClient:
    """Step Functions over one pool of connections. Make it with `open`, end it with `close`.

    Every method raises WireError (see `wire.errors` for its kinds) and tries once.
    """

    def __init__(self, caller: AwsJsonCaller, *, read_timeout_seconds: float = 70.0, max_connections: int = 0) -> None:
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
        read_timeout_seconds: float = 70.0,
        max_connections: int = 0,
    ) -> Self:
        """Return a client; no connection is made and no credentials are looked up before the first call.

        What is not given comes from the environment or the profile as in every AWS SDK. `role_arn` is assumed (with
        `external_id`) by whatever credentials the chain finds. `session` is a botocore session to use instead of a new
        one. `read_timeout_seconds` is for polls, at least 65. `max_connections` bounds the open polls (0: unbounded);
        other calls never wait for a connection. Blocks for about 0.1 s.
        """
        caller = AwsJsonCaller.open(
            "stepfunctions",
            target_prefix="AWSStepFunctions",
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

    async def get_activity_task(self, activity_arn: str, worker_name: str) -> LeasedTask | None:
        """Poll once, for up to a minute. None: no task came. `worker_name` is cut to 80 characters."""
        parameters = {"activityArn": activity_arn, "workerName": worker_name[:MAX_WORKER_NAME_LENGTH]}
        async with self._polls:
            output = await self._caller.call("GetActivityTask", parameters, timeout_seconds=self._read_timeout_seconds)
        token = output.get("taskToken")
        return LeasedTask(token, output.get("input") or "") if token else None

    async def send_task_success(self, task_token: str, output: str) -> None:
        """Conclude a task with its output, a JSON text of at most 262,144 bytes."""
        await self._call("SendTaskSuccess", taskToken=task_token, output=output)

    async def send_task_failure(self, task_token: str, error: str = "", cause: str = "") -> None:
        """Fail a task. `error` is a name of at most 256 characters, `cause` a text of at most 32,768.

        An empty one is not sent, so that the execution has none.
        """
        given = {name: text for name, text in (("error", error), ("cause", cause)) if text}
        await self._call("SendTaskFailure", taskToken=task_token, **given)

    async def send_task_heartbeat(self, task_token: str) -> None:
        """Keep a task alive. Raises WireError `TaskTimedOut` when the task has timed out or does not exist."""
        await self._call("SendTaskHeartbeat", taskToken=task_token)

    async def describe_activity(self, activity_arn: str) -> None:
        """Return if the activity exists and we may see it; raise WireError (`missing`, `denied`) if not."""
        await self._call("DescribeActivity", activityArn=activity_arn)

    async def close(self) -> None:
        """Close the connections. Await open polls first: cutting one can lose a task."""
        await self._caller.close()

    async def _call(self, operation: str, **parameters: str) -> None:
        await self._caller.call(operation, parameters, timeout_seconds=CALL_TIMEOUT_SECONDS, private=("taskToken",))
