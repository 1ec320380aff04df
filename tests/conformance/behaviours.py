"""The behaviours of a Step Functions activity service, one function each. Each returns what it observed.

`BEHAVIOURS` maps each to the behaviour of Step Functions itself; `differences.toml` lists where an emulator differs,
and why.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable

from tests.conformance.services import REGION, Service, outcome

Behaviour = Callable[[Service], Awaitable[object]]
BEHAVIOURS: dict[Behaviour, object] = {}
_MISSING = f"arn:aws:states:{REGION}:123456789012:activity:nobody-made-this"
#: Seconds within which a limit of one second must take effect, on a machine that stalls at times.
_OVERDUE_SECONDS = 15.0


def behaviour(norm: object) -> Callable[[Behaviour], Behaviour]:
    """Add a function to the suite, with the observation that Step Functions would give."""

    def add(function: Behaviour) -> Behaviour:
        BEHAVIOURS[function] = norm
        return function

    return add


@behaviour({"n": [1, "é"]})
async def a_task_carries_the_input_of_its_execution(service: Service) -> object:
    """Inputs are compared as JSON, because services may format it differently."""
    activity = await service.activity()
    await service.execution(activity, '{"n": [1, "é"]}')
    return json.loads((await service.take(activity)).input)


@behaviour({"n": 1})
async def an_open_poll_is_given_the_task_that_arrives(service: Service) -> object:
    """The poll is open before the execution starts."""
    activity = await service.activity()
    poll = asyncio.create_task(service.take(activity))
    await service.client.describe_activity(activity)
    await service.execution(activity, '{"n": 1}')
    return json.loads((await poll).input)


@behaviour(4)
async def four_polls_are_given_four_different_tasks(service: Service) -> object:
    """No task is given to two polls."""
    activity = await service.activity()
    polls = [asyncio.create_task(service.take(activity)) for _ in range(4)]
    for _ in polls:
        await service.execution(activity)
    return len({task.token for task in await asyncio.gather(*polls)})


@behaviour(("SUCCEEDED", {"done": True}))
async def a_success_ends_the_execution_with_the_output(service: Service) -> object:
    """A success ends the execution."""
    task, execution = await service.task()
    await service.client.send_task_success(task.token, '{"done": true}')
    description = await service.ended(execution)
    return description["status"], json.loads(description.get("output", "null"))


@behaviour(("FAILED", "Broken", "why"))
async def a_failure_ends_the_execution_with_its_error_and_cause(service: Service) -> object:
    """The state has no Retry."""
    task, execution = await service.task()
    await service.client.send_task_failure(task.token, "Broken", "why")
    description = await service.ended(execution)
    return description["status"], description.get("error"), description.get("cause")


@behaviour("SUCCEEDED")
async def a_failure_that_the_state_retries_comes_back_as_another_task(service: Service) -> object:
    """Retry repeats the work of a lost worker."""
    activity = await service.activity()
    execution = await service.execution(activity, Retry=[{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1}])
    first = await service.take(activity)
    await service.client.send_task_failure(first.token, "Broken", "")
    second = await service.take(activity)
    assert first.token != second.token
    await service.client.send_task_success(second.token, "{}")
    return (await service.ended(execution))["status"]


@behaviour("TaskTimedOut")
async def a_second_conclusion_is_refused(service: Service) -> object:
    """The first conclusion invalidates the token."""
    task, execution = await service.task()
    await service.client.send_task_success(task.token, "{}")
    await service.ended(execution)
    return await outcome(service.client.send_task_success(task.token, "{}"))


@behaviour("TaskTimedOut")
async def a_heartbeat_after_the_conclusion_is_refused(service: Service) -> object:
    """The conclusion invalidates the token."""
    task, execution = await service.task()
    await service.client.send_task_success(task.token, "{}")
    await service.ended(execution)
    return await outcome(service.client.send_task_heartbeat(task.token))


@behaviour("TaskTimedOut")
async def a_task_of_a_stopped_execution_is_refused(service: Service) -> object:
    """A worker learns by this refusal that its execution was stopped."""
    task, execution = await service.task()
    await service.call("StopExecution", executionArn=execution)
    await service.ended(execution, within_seconds=2)
    return await outcome(service.client.send_task_success(task.token, "{}"))


@behaviour("InvalidToken")
async def a_malformed_token_is_invalid(service: Service) -> object:
    """A token has the service's own form."""
    return await outcome(service.client.send_task_heartbeat("nonsense"))


@behaviour("InvalidOutput")
async def output_that_is_not_json_is_refused(service: Service) -> object:
    """The task can still be concluded afterwards."""
    task, _ = await service.task()
    return await outcome(service.client.send_task_success(task.token, "{not json"))


@behaviour("ValidationException")
async def output_over_the_limit_is_refused(service: Service) -> object:
    """The limit is 262,144 bytes."""
    task, _ = await service.task()
    return await outcome(service.client.send_task_success(task.token, json.dumps("x" * 262_144)))


@behaviour("accepted")
async def a_heartbeat_is_accepted_where_the_state_asks_for_none(service: Service) -> object:
    """The state has no HeartbeatSeconds."""
    task, _ = await service.task()
    return await outcome(service.client.send_task_heartbeat(task.token))


@behaviour("SUCCEEDED")
async def heartbeats_keep_a_task_alive_beyond_its_heartbeat_seconds(service: Service) -> object:
    """Nine seconds of work, with HeartbeatSeconds of six."""
    task, execution = await service.task(HeartbeatSeconds=6)
    for _ in range(6):
        await asyncio.sleep(1.5)  # the test is about time in the service, so it must pass
        await service.client.send_task_heartbeat(task.token)
    await service.client.send_task_success(task.token, "{}")
    return (await service.ended(execution))["status"]


@behaviour(("ended", "TaskTimedOut"))
async def a_missed_heartbeat_ends_the_task(service: Service) -> object:
    """The execution continues with the time-out, and a late success is refused."""
    task, execution = await service.task(HeartbeatSeconds=1)
    description = await service.ended(execution, within_seconds=_OVERDUE_SECONDS)
    late = await outcome(service.client.send_task_success(task.token, "{}"))
    return ("running" if description["status"] == "RUNNING" else "ended"), late


@behaviour(("ended", "TaskTimedOut"))
async def a_task_over_its_timeout_seconds_is_ended(service: Service) -> object:
    """Heartbeats do not prolong it."""
    task, execution = await service.task(TimeoutSeconds=1)
    description = await service.ended(execution, within_seconds=_OVERDUE_SECONDS)
    late = await outcome(service.client.send_task_success(task.token, "{}"))
    return ("running" if description["status"] == "RUNNING" else "ended"), late


@behaviour("ActivityDoesNotExist")
async def polling_an_activity_that_does_not_exist_is_refused(service: Service) -> object:
    """The refusal comes at once, without the minute of a poll."""
    return await outcome(service.client.get_activity_task(_MISSING, "w"))


@behaviour("ActivityDoesNotExist")
async def describing_an_activity_that_does_not_exist_is_refused(service: Service) -> object:
    """The operator learns by this refusal that an activity is missing."""
    return await outcome(service.client.describe_activity(_MISSING))


@behaviour("InvalidArn")
async def a_malformed_arn_is_refused(service: Service) -> object:
    """The error is about the ARN, not about a missing activity."""
    return await outcome(service.client.describe_activity("arn:aws:states:nowhere"))


@behaviour("the same ARN")
async def an_activity_created_again_is_the_same(service: Service) -> object:
    """A creation may be repeated."""
    arn = await service.activity()
    code = await outcome(service.call("CreateActivity", name=arn.rsplit(":", 1)[-1]))
    return "the same ARN" if code == "accepted" else code


@behaviour(["ActivityScheduled", "ActivityStarted", "ActivitySucceeded"])
async def the_history_tells_of_the_activity(service: Service) -> object:
    """Only the events between the state's entry and exit are compared."""
    task, execution = await service.task()
    await service.client.send_task_success(task.token, "{}")
    await service.ended(execution)
    history = await service.call("GetExecutionHistory", executionArn=execution)
    kinds = [event["type"] for event in history["events"]]
    return kinds[kinds.index("TaskStateEntered") + 1 : kinds.index("TaskStateExited")]
