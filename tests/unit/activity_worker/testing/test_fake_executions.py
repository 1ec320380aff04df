"""Executions of the fake: one Task state, its Retry, and its end."""

import json
from typing import Any

import pytest

from activity_worker.testing.fake_clock import VirtualClock
from activity_worker.testing.fake_executions import FakeExecution, FakeExecutions
from activity_worker.testing.fake_tasks import FakeServiceError, FakeTask, FakeTasks

ARN = "arn:aws:states:us-east-1:123456789012:activity:resize"
MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:m"


class Service:
    """The fake's tasks and executions in virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.tasks = FakeTasks(self.clock, lambda: None)
        self.activity = self.tasks.create_activity(ARN)
        self.executions = FakeExecutions(self.tasks, self.clock)

    def run(self, **state: Any) -> FakeExecution:
        self.executions.create_machine(MACHINE, "m", definition(**state))
        return self.executions.start(MACHINE, "", '{"n": 1}')

    async def take(self) -> FakeTask:
        assert self.activity.queue.waiting, "no task waits"
        task = await self.tasks.take(self.activity, "w", 60, 1000)
        assert task is not None
        return task


def definition(**state: Any) -> str:
    task = {"Type": "Task", "Resource": ARN, "End": True} | state
    return json.dumps({"StartAt": "Work", "States": {"Work": task}})


@pytest.fixture
def service() -> Service:
    return Service()


def kinds(execution: FakeExecution) -> list[str]:
    return [event["type"] for event in execution.history]


async def test_output_of_the_task_is_the_output_of_the_execution(service: Service) -> None:
    execution = service.run()
    task = await service.take()
    assert task.input == '{"n": 1}'
    service.tasks.succeed(task.token, '{"done": true}')

    assert (execution.status, execution.output) == ("SUCCEEDED", '{"done": true}')
    assert kinds(execution) == [
        "ExecutionStarted",
        "TaskStateEntered",
        "ActivityScheduled",
        "ActivityStarted",
        "ActivitySucceeded",
        "TaskStateExited",
        "ExecutionSucceeded",
    ]


async def test_failure_without_a_retry_fails_the_execution(service: Service) -> None:
    execution = service.run()
    service.tasks.fail((await service.take()).token, "Broken", "why")

    assert (execution.status, execution.error, execution.cause) == ("FAILED", "Broken", "why")


async def test_retry_backs_off_and_ends_after_its_last_attempt(service: Service) -> None:
    retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 2, "MaxAttempts": 2, "BackoffRate": 3}]
    execution = service.run(Retry=retry)
    for wait in (2, 6):
        service.tasks.fail((await service.take()).token, "Broken", "")
        service.clock.advance(wait - 0.1)
        assert not service.activity.queue.waiting
        service.clock.advance(0.1)

    service.tasks.fail((await service.take()).token, "Broken", "")

    assert execution.status == "FAILED"


@pytest.mark.parametrize(
    ("names", "retried"),
    [
        (["States.HeartbeatTimeout"], True),
        (["States.Timeout"], True),
        (["States.ALL"], True),
        (["States.TaskFailed"], False),
        (["Broken"], False),
    ],
)
async def test_heartbeat_timeout_is_retried_by_matching_retriers(
    service: Service, names: list[str], retried: bool
) -> None:
    execution = service.run(HeartbeatSeconds=10, Retry=[{"ErrorEquals": names, "IntervalSeconds": 1}])
    await service.take()
    service.clock.advance(11)

    assert retried == bool(service.activity.queue.waiting)
    assert ("RUNNING" if retried else "FAILED") == execution.status


async def test_stopped_execution_invalidates_its_token(service: Service) -> None:
    execution = service.run()
    task = await service.take()
    service.executions.stop(execution.arn, None, None)

    with pytest.raises(FakeServiceError, match="TaskTimedOut"):
        service.tasks.succeed(task.token, "1")
    assert (execution.status, task.state) == ("ABORTED", "aborted")


def test_stopped_execution_removes_its_waiting_task(service: Service) -> None:
    execution = service.run()
    service.executions.stop(execution.arn, None, None)

    assert not service.activity.queue.waiting


def test_start_with_equal_name_and_input_returns_the_same_execution(service: Service) -> None:
    service.run()
    first = service.executions.start(MACHINE, "one", "{}")

    assert service.executions.start(MACHINE, "one", "{}") is first
    with pytest.raises(FakeServiceError, match="ExecutionAlreadyExists"):
        service.executions.start(MACHINE, "one", "[]")


@pytest.mark.parametrize(
    "text",
    [
        "{not json",
        "[]",
        '{"StartAt": "A", "States": {}}',
        definition(Type="Pass"),
        definition(Resource="arn:aws:lambda:us-east-1:123456789012:function:f"),
        definition(Catch=[]),
        definition(End=False),
    ],
)
def test_unsupported_definition_is_refused_at_creation(service: Service, text: str) -> None:
    with pytest.raises(FakeServiceError, match="InvalidDefinition"):
        service.executions.create_machine(MACHINE, "m", text)


async def test_execution_outlives_its_deleted_state_machine(service: Service) -> None:
    execution = service.run()
    service.executions.delete_machine(MACHINE)
    service.executions.delete_machine(MACHINE)
    with pytest.raises(FakeServiceError, match="State Machine Does Not Exist"):
        service.executions.start(MACHINE, "", "{}")
    task = await service.take()
    service.tasks.succeed(task.token, "2")
    assert (execution.status, execution.output) == ("SUCCEEDED", "2")
