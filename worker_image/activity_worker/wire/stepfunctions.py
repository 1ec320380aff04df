"""The Step Functions calls of an activity worker, and of the operator that polls for one.

GetActivityTask is a long poll: the service holds it for up to 60 s and asks for a read time-out of at least 65 s.
"""

from activity_worker.contract import LeasedTask
from activity_worker.wire.task_client import TaskServiceClient

#: The service's limits: characters of a worker's name, bytes of an output, characters of an error's name and cause.
MAX_WORKER_NAME_LENGTH = 80
MAX_OUTPUT_BYTES = 262_144
MAX_ERROR_LENGTH = 256
MAX_CAUSE_LENGTH = 32_768


class StepFunctionsClient(TaskServiceClient):
    """Step Functions over one pool of connections. Make it with `open`, end it with `close`.

    Every method raises WireError (see `wire.errors` for its kinds) and tries once.
    """

    service = "stepfunctions"
    target_prefix = "AWSStepFunctions"
    min_read_timeout_seconds = 65.0

    async def get_activity_task(self, activity_arn: str, worker_name: str) -> LeasedTask | None:
        """Poll once, for up to a minute. None: no task came. `worker_name` is cut to 80 characters."""
        parameters = {"activityArn": activity_arn, "workerName": worker_name[:MAX_WORKER_NAME_LENGTH]}
        output = await self._poll("GetActivityTask", parameters)
        token = output.get("taskToken")
        return LeasedTask(token, output.get("input") or "") if token else None

    async def send_task_success(self, task_token: str, output: str) -> None:
        """Conclude a task with its output, a JSON text of at most 262,144 bytes."""
        await self._send("SendTaskSuccess", {"taskToken": task_token, "output": output})

    async def send_task_failure(self, task_token: str, error: str = "", cause: str = "") -> None:
        """Fail a task. `error` is a name of at most 256 characters, `cause` a text of at most 32,768.

        An empty one is not sent, so that the execution has none.
        """
        given = {name: text for name, text in (("error", error), ("cause", cause)) if text}
        await self._send("SendTaskFailure", {"taskToken": task_token} | given)

    async def send_task_heartbeat(self, task_token: str) -> None:
        """Keep a task alive. Raises WireError `TaskTimedOut` when the task has timed out or does not exist."""
        await self._send("SendTaskHeartbeat", {"taskToken": task_token})

    async def describe_activity(self, activity_arn: str) -> None:
        """Return if the activity exists and we may see it; raise WireError (`missing`, `denied`) if not."""
        await self._send("DescribeActivity", {"activityArn": activity_arn})
