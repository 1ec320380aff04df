"""boto3 against the fake: the fake's HTTP API has the service's own form."""

import json
from typing import Any

import pytest

from activity_worker.testing import StepFunctionsFake
from tests.conformance.boto3_peer import with_boto3


async def test_boto3_can_create_run_and_read_everything_the_fake_has() -> None:
    def story(sfn: Any) -> None:
        arn = sfn.create_activity(name="resize")["activityArn"]
        assert sfn.describe_activity(activityArn=arn)["name"] == "resize"
        retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 0.01, "MaxAttempts": 1}]
        state = {"Type": "Task", "Resource": arn, "End": True, "HeartbeatSeconds": 30, "Retry": retry}
        definition = json.dumps({"StartAt": "Work", "States": {"Work": state}})
        machine = sfn.create_state_machine(name="m", definition=definition, roleArn="arn:aws:iam::123456789012:role/r")
        machine_arn = machine["stateMachineArn"]
        execution = sfn.start_execution(stateMachineArn=machine_arn, input='{"n": 1}')["executionArn"]

        task = sfn.get_activity_task(activityArn=arn, workerName="boto3")
        sfn.send_task_failure(taskToken=task["taskToken"], error="Broken", cause="why")
        task = sfn.get_activity_task(activityArn=arn, workerName="boto3")
        assert json.loads(task["input"]) == {"n": 1}
        sfn.send_task_heartbeat(taskToken=task["taskToken"])
        sfn.send_task_success(taskToken=task["taskToken"], output='{"done": true}')

        description = sfn.describe_execution(executionArn=execution)
        assert (description["status"], description["output"]) == ("SUCCEEDED", '{"done": true}')
        assert description["startDate"] <= description["stopDate"]
        kinds = [event["type"] for event in sfn.get_execution_history(executionArn=execution)["events"]]
        assert kinds.count("ActivityFailed") == kinds.count("ActivitySucceeded") == 1

        other = sfn.start_execution(stateMachineArn=machine_arn)["executionArn"]
        sfn.stop_execution(executionArn=other, error="Stop", cause="asked")
        pages = sfn.get_paginator("list_executions").paginate(
            stateMachineArn=machine_arn, PaginationConfig={"PageSize": 1}
        )
        listed = [execution["status"] for page in pages for execution in page["executions"]]
        assert listed == ["ABORTED", "SUCCEEDED"]
        sfn.delete_activity(activityArn=arn)
        with pytest.raises(sfn.exceptions.ActivityDoesNotExist):
            sfn.describe_activity(activityArn=arn)

    fake = StepFunctionsFake()
    await with_boto3("stepfunctions", fake, story)

    assert [(task.state, task.conclusions) for task in fake.tasks] == [("failed", 1), ("succeeded", 1), ("aborted", 0)]


async def test_boto3_maps_the_fakes_errors_to_its_classes() -> None:
    def story(sfn: Any) -> None:
        known = sfn.exceptions
        with pytest.raises(known.ActivityDoesNotExist):
            sfn.get_activity_task(activityArn="arn:aws:states:us-east-1:123456789012:activity:none")
        with pytest.raises(known.InvalidArn):
            sfn.describe_activity(activityArn="nonsense")
        with pytest.raises(known.InvalidToken):
            sfn.send_task_heartbeat(taskToken="nonsense")
        with pytest.raises(known.InvalidDefinition):
            sfn.create_state_machine(name="m", definition="{}", roleArn="arn:aws:iam::123456789012:role/r")
        with pytest.raises(known.StateMachineDoesNotExist):
            sfn.start_execution(stateMachineArn="arn:aws:states:us-east-1:123456789012:stateMachine:none")
        with pytest.raises(known.ExecutionDoesNotExist):
            sfn.describe_execution(executionArn="arn:aws:states:us-east-1:123456789012:execution:none:none")

    await with_boto3("stepfunctions", StepFunctionsFake(), story)
