"""A decider that is written with boto3, and `activity-worker run` on its activities, over the SWF fake."""

import asyncio
from typing import Any

import pytest

from activity_worker.testing import SwfFake
from tests.conformance.boto3_peer import client
from tests.conformance.test_boto3_swf_peer import NONE

from .process import worker
from .test_swf import run_of

DOUBLE, ORDER = {"name": "double", "version": "1"}, {"name": "order", "version": "1"}


def decide(swf: Any) -> str | None:
    """Answer one decision task: schedule the activity, or complete the execution with its result."""
    task = swf.poll_for_decision_task(domain="shop", taskList={"name": "decisions"})
    closing = [event for event in task["events"] if event["eventType"] == "ActivityTaskCompleted"]
    result: str | None = closing[0]["activityTaskCompletedEventAttributes"]["result"] if closing else None
    attributes = {"activityType": DOUBLE, "activityId": "a", "taskList": {"name": "charges"}, "input": "21"} | NONE
    schedule = {"decisionType": "ScheduleActivityTask", "scheduleActivityTaskDecisionAttributes": attributes}
    complete = {
        "decisionType": "CompleteWorkflowExecution",
        "completeWorkflowExecutionDecisionAttributes": {"result": result or ""},
    }
    decisions = [schedule if result is None else complete]
    swf.respond_decision_task_completed(taskToken=task["taskToken"], decisions=decisions)
    return result


@pytest.mark.timeout(120)  # the worker's process starts on a busy machine
async def test_boto3_decider_gets_the_workers_result() -> None:
    def story(swf: Any) -> str | None:
        swf.register_workflow_type(domain="shop", **ORDER, defaultTaskList={"name": "decisions"})
        swf.start_workflow_execution(domain="shop", workflowId="order-1", workflowType=ORDER)
        assert decide(swf) is None
        return decide(swf)

    async with SwfFake(domains=["shop"]) as fake:
        # The worker registers the activity type that the decider schedules.
        async with worker(*run_of(fake, "--swf-register-activity-types", "true")) as running:
            await running.line_with("worker ready")
            swf = client("swf", fake.url)
            result = await asyncio.to_thread(story, swf)
            swf.close()
        (task,) = fake.tasks

    assert result == "42"
    assert task.workflow.close_status == "COMPLETED"
    assert [event["eventType"] for event in task.workflow.history].count("ActivityTaskCompleted") == 1
