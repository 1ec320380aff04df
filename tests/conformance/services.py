"""A Step Functions service under test: the fake or an emulator, reached through our client."""

import asyncio
import itertools
import json
import os
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Self

from botocore.credentials import Credentials

from activity_worker.contract import LeasedTask
from activity_worker.wire.aws import AwsJsonCaller
from activity_worker.wire.credentials import CredentialsProvider
from activity_worker.wire.errors import WireError
from activity_worker.wire.plain_environment import AwsEndpoint
from activity_worker.wire.stepfunctions import StepFunctionsClient
from tests.eventually import NotInTimeError, eventually

REGION = "us-east-1"
_ROLE = "arn:aws:iam::123456789012:role/states"
_numbers = itertools.count(1)


class Service:
    """Short methods for the calls of the behaviours. `name` is `fake` or an emulator's."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        endpoint = AwsEndpoint(url, REGION, "states", "")
        keeper = CredentialsProvider(lambda: Credentials("test", "test"))
        self._caller = AwsJsonCaller(endpoint, keeper, target_prefix="AWSStepFunctions")
        self.client = StepFunctionsClient(self._caller)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Call an operation that our client does not offer."""
        return await self._caller.call(operation, parameters, timeout_seconds=20)

    async def activity(self) -> str:
        """Make an activity with a new name; return its ARN."""
        made = await self.call("CreateActivity", name=new_name())
        return str(made["activityArn"])

    async def execution(self, activity_arn: str, execution_input: str = "{}", **state: Any) -> str:
        """Start an execution of one Task state over the activity; return its ARN."""
        task = {"Type": "Task", "Resource": activity_arn, "End": True} | state
        definition = json.dumps({"StartAt": "Work", "States": {"Work": task}})
        machine = await self.call("CreateStateMachine", name=new_name(), definition=definition, roleArn=_ROLE)
        started = await self.call("StartExecution", stateMachineArn=machine["stateMachineArn"], input=execution_input)
        return str(started["executionArn"])

    async def take(self, activity_arn: str) -> LeasedTask:
        """Poll until a task comes."""
        async with asyncio.timeout(30):
            while True:
                task = await self.client.get_activity_task(activity_arn, "conformance")
                if task is not None:
                    return task

    async def task(self, **state: Any) -> tuple[LeasedTask, str]:
        """Start an execution and take its task; return both."""
        activity = await self.activity()
        execution = await self.execution(activity, **state)
        return await self.take(activity), execution

    async def describe(self, execution_arn: str) -> dict[str, Any]:
        """Return the service's description of an execution."""
        return await self.call("DescribeExecution", executionArn=execution_arn)

    async def ended(self, execution_arn: str, *, within_seconds: float = 10.0) -> dict[str, Any]:
        """Return the service's description of an execution when it has ended, or when the time is over."""

        async def over() -> dict[str, Any] | None:
            description = await self.describe(execution_arn)
            return description if description["status"] != "RUNNING" else None

        with suppress(NotInTimeError):
            return await eventually("the execution has ended", over, seconds=within_seconds)
        return await self.describe(execution_arn)


async def outcome(call: Awaitable[object]) -> str:
    """Return the error code of a call, or `accepted`."""
    try:
        await call
    except WireError as error:
        return error.code
    return "accepted"


def new_name() -> str:
    """Return a unique name."""
    return f"conformance-{os.getpid()}-{next(_numbers)}"
