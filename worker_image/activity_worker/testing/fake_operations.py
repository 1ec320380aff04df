"""The operations of the fake service: from parameters to an answer, limits checked as the service's model has them."""

import json
import re
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from activity_worker.testing.fake_calls import Operation, Parameters, answer_call
from activity_worker.testing.fake_clock import Clock
from activity_worker.testing.fake_executions import FakeExecution, FakeExecutions, FakeStateMachine
from activity_worker.testing.fake_tasks import FakeActivity, FakeServiceError, FakeTasks

_ACTIVITY_ARN = re.compile(r"arn:aws[a-z-]*:states:[a-z0-9-]+:\d{12}:activity:[^:]+")
_MAX_LENGTHS = {
    "activityArn": 256,
    "workerName": 80,
    "taskToken": 2048,
    "output": 262_144,
    "error": 256,
    "cause": 32_768,
    "input": 262_144,
}


@dataclass(slots=True)
class FakeSettings:
    """What a test may turn: how long polls are held, how many an activity may have, where the fake says it is."""

    poll_hold_seconds: float = 60.0
    activity_worker_limit: int = 1000
    region: str = "us-east-1"
    account: str = "123456789012"
    clock_offset_seconds: float = 0.0
    """The service's clock minus ours; when it is not 0, requests more than 5 minutes off are refused."""


class FakeOperations:
    """Answers operations by name over `tasks` and `executions`."""

    def __init__(self, settings: FakeSettings, tasks: FakeTasks, executions: FakeExecutions, clock: Clock) -> None:
        self._settings = settings
        self._tasks = tasks
        self._executions = executions
        self._epoch = time.time() - clock.now()
        self.by_name: dict[str, Operation] = {
            "GetActivityTask": self._get_activity_task,
            "SendTaskHeartbeat": self._send_task_heartbeat,
            "SendTaskSuccess": self._send_task_success,
            "SendTaskFailure": self._send_task_failure,
            "CreateActivity": self._create_activity,
            "DescribeActivity": self._describe_activity,
            "DeleteActivity": self._delete_activity,
            "ListActivities": self._list_activities,
            "CreateStateMachine": self._create_state_machine,
            "DescribeStateMachine": self._describe_state_machine,
            "DeleteStateMachine": self._delete_state_machine,
            "ListStateMachines": self._list_state_machines,
            "StartExecution": self._start_execution,
            "DescribeExecution": self._describe_execution,
            "ListExecutions": self._list_executions,
            "StopExecution": self._stop_execution,
            "GetExecutionHistory": self._get_execution_history,
        }

    def answer(self, operation: str, parameters: Parameters) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """Return the output, or an awaitable of it. Raises FakeServiceError."""
        return answer_call(self.by_name, operation, parameters, most_characters=_MAX_LENGTHS)

    async def _get_activity_task(self, said: Parameters) -> dict[str, Any]:
        activity = self._tasks.activity(_checked(said["activityArn"]))
        settings = self._settings
        task = await self._tasks.take(
            activity, said.get("workerName") or "", settings.poll_hold_seconds, settings.activity_worker_limit
        )
        return {"taskToken": task.token, "input": task.input} if task else {}

    def _send_task_heartbeat(self, said: Parameters) -> dict[str, Any]:
        self._tasks.heartbeat(said["taskToken"])
        return {}

    def _send_task_success(self, said: Parameters) -> dict[str, Any]:
        self._tasks.succeed(said["taskToken"], said["output"])
        return {}

    def _send_task_failure(self, said: Parameters) -> dict[str, Any]:
        self._tasks.fail(said["taskToken"], said.get("error") or "", said.get("cause") or "")
        return {}

    def _create_activity(self, said: Parameters) -> dict[str, Any]:
        activity = self._tasks.create_activity(self.arn("activity", said["name"]))
        return {"activityArn": activity.arn, "creationDate": self._epoch + activity.created_at}

    def _describe_activity(self, said: Parameters) -> dict[str, Any]:
        return self._activity(self._tasks.activity(_checked(said["activityArn"])))

    def _delete_activity(self, said: Parameters) -> dict[str, Any]:
        self._tasks.delete_activity(_checked(said["activityArn"]))
        return {}

    def _list_activities(self, said: Parameters) -> dict[str, Any]:
        page, following = _page(list(self._tasks.activities.values()), said, 100)
        return {"activities": [self._activity(activity) for activity in page]} | following

    def _activity(self, activity: FakeActivity) -> dict[str, Any]:
        name = activity.arn.rsplit(":", 1)[-1]
        return {"activityArn": activity.arn, "name": name, "creationDate": self._epoch + activity.created_at}

    def _create_state_machine(self, said: Parameters) -> dict[str, Any]:
        arn = self.arn("stateMachine", said["name"])
        machine = self._executions.create_machine(arn, said["name"], said["definition"], said.get("roleArn") or "")
        return {"stateMachineArn": machine.arn, "creationDate": self._epoch + machine.created_at}

    def _describe_state_machine(self, said: Parameters) -> dict[str, Any]:
        machine = self._executions.machine(said["stateMachineArn"])
        definition = json.dumps({"StartAt": machine.state_name, "States": {machine.state_name: machine.state}})
        return self._machine(machine) | {"status": "ACTIVE", "definition": definition, "roleArn": machine.role_arn}

    def _delete_state_machine(self, said: Parameters) -> dict[str, Any]:
        self._executions.delete_machine(said["stateMachineArn"])
        return {}

    def _list_state_machines(self, said: Parameters) -> dict[str, Any]:
        page, following = _page(list(self._executions.machines.values()), said, 100)
        return {"stateMachines": [self._machine(machine) for machine in page]} | following

    def _machine(self, machine: FakeStateMachine) -> dict[str, Any]:
        return {
            "stateMachineArn": machine.arn,
            "name": machine.name,
            "type": "STANDARD",
            "creationDate": self._epoch + machine.created_at,
        }

    def _start_execution(self, said: Parameters) -> dict[str, Any]:
        execution = self._executions.start(said["stateMachineArn"], said.get("name") or "", said.get("input") or "{}")
        return {"executionArn": execution.arn, "startDate": self._epoch + execution.started_at}

    def _describe_execution(self, said: Parameters) -> dict[str, Any]:
        execution = self._executions.execution(said["executionArn"])
        extra = {"output": execution.output, "error": execution.error, "cause": execution.cause}
        return (
            self._summary(execution)
            | {"input": execution.input}
            | {name: value for name, value in extra.items() if value is not None}
        )

    def _list_executions(self, said: Parameters) -> dict[str, Any]:
        machine = self._executions.machine(said["stateMachineArn"])
        wanted = said.get("statusFilter")
        found = [
            execution
            for execution in reversed(self._executions.executions.values())
            if execution.machine is machine and wanted in {None, execution.status}
        ]
        page, following = _page(found, said, 100)
        return {"executions": [self._summary(execution) for execution in page]} | following

    def _stop_execution(self, said: Parameters) -> dict[str, Any]:
        execution = self._executions.stop(said["executionArn"], said.get("error"), said.get("cause"))
        return {"stopDate": self._epoch + (execution.stopped_at or 0.0)}

    def _get_execution_history(self, said: Parameters) -> dict[str, Any]:
        history = self._executions.execution(said["executionArn"]).history
        page, following = _page(history[::-1] if said.get("reverseOrder") else history, said, 100)
        return {"events": [event | {"timestamp": self._epoch + event["timestamp"]} for event in page]} | following

    def _summary(self, execution: FakeExecution) -> dict[str, Any]:
        stopped = {} if execution.stopped_at is None else {"stopDate": self._epoch + execution.stopped_at}
        return {
            "executionArn": execution.arn,
            "stateMachineArn": execution.machine.arn,
            "name": execution.name,
            "status": execution.status,
            "startDate": self._epoch + execution.started_at,
        } | stopped

    def arn(self, kind: str, name: str) -> str:
        """Return the ARN of an activity or state machine of this name."""
        return f"arn:aws:states:{self._settings.region}:{self._settings.account}:{kind}:{name}"


def _checked(arn: str) -> str:
    if not _ACTIVITY_ARN.fullmatch(arn):
        raise FakeServiceError("InvalidArn", f"Invalid Arn: 'Invalid ARN: {arn}'")
    return arn


def _page(found: list[Any], said: Parameters, most: int) -> tuple[list[Any], dict[str, str]]:
    """Return one page, and the token of the next one if there is more."""
    try:
        start = int(said.get("nextToken") or 0)
    except ValueError:
        raise FakeServiceError("InvalidToken", "Invalid Token: 'Invalid token'") from None
    end = start + int(said.get("maxResults") or most)
    return found[start:end], ({"nextToken": str(end)} if end < len(found) else {})
