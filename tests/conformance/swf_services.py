"""An Amazon SWF service under test: the fake or moto, reached through our client, with a decider of raw calls."""

import asyncio
import itertools
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from botocore.credentials import Credentials

from activity_worker.contract import LeasedTask
from activity_worker.wire.aws import AwsJsonCaller
from activity_worker.wire.credentials import CredentialsProvider
from activity_worker.wire.plain_environment import AwsEndpoint
from activity_worker.wire.swf import SwfClient
from tests.conformance.services import REGION, new_name
from tests.eventually import NotInTimeError, eventually

#: Every time-out that a decision must name unless the type has a default. moto demands all four.
NO_TIMEOUTS: Final = dict.fromkeys(
    ("scheduleToStartTimeout", "scheduleToCloseTimeout", "startToCloseTimeout", "heartbeatTimeout"), "NONE"
)
_WORKFLOW_DEFAULTS: Final = {
    "defaultTaskStartToCloseTimeout": "300",
    "defaultExecutionStartToCloseTimeout": "3600",
    "defaultChildPolicy": "TERMINATE",
}
_DECISIONS: Final = "decisions"
_ORDER: Final = {"name": "order", "version": "1"}
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Execution:
    """A workflow execution, and the task lists of its activities and of its decisions."""

    workflow_id: str
    run_id: str
    task_list: str
    decisions: str

    @property
    def name(self) -> dict[str, str]:
        """Its name in calls."""
        return {"workflowId": self.workflow_id, "runId": self.run_id}


class SwfService:
    """Short methods for the calls of the behaviours, in a domain of its own. `name` is `fake` or an emulator's."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.domain = new_name()
        keeper = CredentialsProvider(lambda: Credentials("test", "test"))
        self._caller = AwsJsonCaller(AwsEndpoint(url, REGION, "swf", ""), keeper, target_prefix="SimpleWorkflowService")
        self.client = SwfClient(self._caller)

    async def __aenter__(self) -> Self:
        await self.call("RegisterDomain", name=self.domain, workflowExecutionRetentionPeriodInDays="1")
        for kind, defaults in (("Workflow", _WORKFLOW_DEFAULTS), ("Activity", {})):
            name = "order" if kind == "Workflow" else "work"
            await self.call(f"Register{kind}Type", domain=self.domain, name=name, version="1", **defaults)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Call an operation that our client does not offer."""
        return await self._caller.call(operation, parameters, timeout_seconds=20)

    async def start(self, task_list: str = "", **workflow: Any) -> Execution:
        """Start an execution with a decision list of its own."""
        decisions = f"{_DECISIONS}-{next(_numbers)}"
        name = f"order-{os.getpid()}-{next(_numbers)}"
        started = await self.call(
            "StartWorkflowExecution",
            domain=self.domain,
            workflowId=name,
            workflowType=_ORDER,
            taskList={"name": decisions},
            **workflow,
        )
        return Execution(name, str(started["runId"]), task_list or new_name(), decisions)

    async def decide(self, execution: Execution, *decisions: dict[str, Any]) -> list[dict[str, Any]]:
        """Answer the execution's next decision task with these decisions; return its history."""
        async with asyncio.timeout(30):
            while True:
                task = await self.call(
                    "PollForDecisionTask", domain=self.domain, taskList={"name": execution.decisions}
                )
                if task.get("taskToken"):
                    break
        await self.call("RespondDecisionTaskCompleted", taskToken=task["taskToken"], decisions=list(decisions))
        return list(task["events"])

    def activity(
        self, execution: Execution, task_input: str = "", activity_id: str = "a", **timeouts: str
    ) -> dict[str, Any]:
        """Return the decision that schedules an activity; `timeouts` as the API names them."""
        attributes = {
            "activityId": activity_id,
            "activityType": {"name": "work", "version": "1"},
            "taskList": {"name": execution.task_list},
            "input": task_input,
        }
        return {
            "decisionType": "ScheduleActivityTask",
            "scheduleActivityTaskDecisionAttributes": attributes | NO_TIMEOUTS | timeouts,
        }

    async def scheduled(self, task_input: str = "", *, task_list: str = "", **timeouts: str) -> Execution:
        """Start an execution and schedule one activity."""
        execution = await self.start(task_list)
        await self.decide(execution, self.activity(execution, task_input, **timeouts))
        return execution

    async def take(self, execution: Execution) -> LeasedTask:
        """Poll until a task comes."""
        async with asyncio.timeout(30):
            while True:
                task = await self.client.poll_for_activity_task(self.domain, execution.task_list, "conformance")
                if task is not None:
                    return task

    async def task(self, task_input: str = "", **timeouts: str) -> tuple[LeasedTask, Execution]:
        """Start an execution and take its activity's task; return both."""
        execution = await self.scheduled(task_input, **timeouts)
        return await self.take(execution), execution

    async def history(self, execution: Execution) -> list[dict[str, Any]]:
        """Return the events of an execution."""
        answer = await self.call("GetWorkflowExecutionHistory", domain=self.domain, execution=execution.name)
        return list(answer["events"])

    async def activity_events(self, execution: Execution) -> list[str]:
        """Return the events of the execution's activities, without the prefix of their names."""
        kinds = [str(event["eventType"]) for event in await self.history(execution)]
        return [kind.removeprefix("ActivityTask") for kind in kinds if kind.startswith("ActivityTask")]

    async def closed(self, execution: Execution, *, within_seconds: float) -> list[str]:
        """Return the events of the activities when one of them closes, or when the time is over."""

        async def over() -> list[str] | None:
            events = await self.activity_events(execution)
            return events if events[-1] not in ("Scheduled", "Started") else None

        with suppress(NotInTimeError):
            return await eventually("an activity task is closed", over, seconds=within_seconds)
        return await self.activity_events(execution)

    async def attributes(self, execution: Execution, kind: str) -> dict[str, Any]:
        """Return the attributes of the last event of a kind, as `ActivityTaskFailed`."""
        events = [event for event in await self.history(execution) if event["eventType"] == kind]
        return dict(events[-1][f"{kind[0].lower()}{kind[1:]}EventAttributes"])


def fields(attributes: dict[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """Return some of an event's attributes; None for what is missing."""
    return tuple(attributes.get(name) for name in names)
