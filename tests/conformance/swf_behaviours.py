"""The behaviours of Amazon SWF towards activity workers, one function each. Each returns what it observed.

`SWF_BEHAVIOURS` maps each to the behaviour of Amazon SWF itself; `swf_differences.toml` lists where an emulator
differs, and why.
"""

import asyncio
from collections.abc import Awaitable, Callable

from activity_worker.wire.swf import MAX_RESULT_LENGTH, ActivityDefaults
from tests.conformance.services import new_name, outcome
from tests.conformance.swf_services import SwfService, fields

SwfBehaviour = Callable[[SwfService], Awaitable[object]]
SWF_BEHAVIOURS: dict[SwfBehaviour, object] = {}
#: Seconds within which a limit of one second must take effect, on a machine that stalls at times.
_OVERDUE_SECONDS = 15.0
#: Less: an emulator that never enforces a limit is asked for so long.
_LATE_SECONDS = 6.0
_UNKNOWN = "UnknownResourceFault"


def behaviour(norm: object) -> Callable[[SwfBehaviour], SwfBehaviour]:
    """Add a function to the suite, with the observation that Amazon SWF would give."""

    def add(function: SwfBehaviour) -> SwfBehaviour:
        SWF_BEHAVIOURS[function] = norm
        return function

    return add


@behaviour(("3", "work", "1", "a", True))
async def a_task_carries_input_type_activity_and_execution(service: SwfService) -> object:
    """What a worker knows of a task."""
    task, execution = await service.task("3")
    assert task.activity is not None
    known = task.activity
    same = (known.workflow_id, known.run_id) == (execution.workflow_id, execution.run_id)
    return task.input, known.name, known.version, known.id, same


@behaviour(True)
async def an_open_poll_is_given_the_task_that_arrives(service: SwfService) -> object:
    """The poll is open before the activity is scheduled."""
    execution = await service.start()
    poll = asyncio.create_task(service.client.poll_for_activity_task(service.domain, execution.task_list))
    await service.client.describe_domain(service.domain)
    await service.decide(execution, service.activity(execution))
    return await poll is not None


@behaviour(4)
async def four_polls_are_given_four_different_tasks(service: SwfService) -> object:
    """No task is given to two polls, one after the other: moto answers polls in threads without a lock."""
    first = await service.scheduled("0")
    for n in range(1, 4):
        await service.scheduled(str(n), task_list=first.task_list)
    return len({(await service.take(first)).token for _ in range(4)})


@behaviour((["Scheduled", "Started", "Completed"], "4", "COMPLETED"))
async def a_completed_activity_reaches_its_decider(service: SwfService) -> object:
    """The decider is given another decision task, and completes the execution."""
    task, execution = await service.task("2")
    await service.client.respond_completed(task.token, "4")
    await service.decide(execution, {"decisionType": "CompleteWorkflowExecution"})
    described = await service.call("DescribeWorkflowExecution", domain=service.domain, execution=execution.name)
    result = await service.attributes(execution, "ActivityTaskCompleted")
    return await service.activity_events(execution), result.get("result"), described["executionInfo"]["closeStatus"]


@behaviour((["Scheduled", "Started", "Failed"], "Broken", "why"))
async def a_failed_activity_tells_reason_and_details(service: SwfService) -> object:
    """As above, with a failure."""
    task, execution = await service.task()
    await service.client.respond_failed(task.token, "Broken", "why")
    failed = await service.attributes(execution, "ActivityTaskFailed")
    return await service.activity_events(execution), *fields(failed, ("reason", "details"))


@behaviour(["Scheduled", "Started", "Failed", "Scheduled", "Started", "Completed"])
async def a_failed_activity_that_is_scheduled_again_is_another_task(service: SwfService) -> object:
    """Amazon SWF has no Retry: its decider repeats the work."""
    first, execution = await service.task()
    await service.client.respond_failed(first.token, "Broken", "")
    await service.decide(execution, service.activity(execution, activity_id="b"))
    second = await service.take(execution)
    assert first.token != second.token
    await service.client.respond_completed(second.token, "")
    return await service.activity_events(execution)


@behaviour((_UNKNOWN, _UNKNOWN, _UNKNOWN, ["Scheduled", "Started", "Completed"]))
async def every_call_after_a_completion_is_refused(service: SwfService) -> object:
    """A second completion, a failure and a heartbeat; the history has one closing event."""
    task, execution = await service.task()
    await service.client.respond_completed(task.token, "")
    late = (
        service.client.respond_completed(task.token, "again"),
        service.client.respond_failed(task.token, "Late", ""),
        service.client.record_heartbeat(task.token),
    )
    return *[await outcome(call) for call in late], await service.activity_events(execution)


@behaviour((_UNKNOWN, ["Scheduled", "Started", "Failed"]))
async def a_call_after_a_failure_is_refused(service: SwfService) -> object:
    """As above, after a failure."""
    task, execution = await service.task()
    await service.client.respond_failed(task.token, "Broken", "")
    return await outcome(service.client.respond_completed(task.token, "")), await service.activity_events(execution)


@behaviour((_UNKNOWN, _UNKNOWN))
async def a_task_of_a_terminated_execution_is_refused(service: SwfService) -> object:
    """A worker learns by this refusal that its execution has ended."""
    task, execution = await service.task()
    await service.call("TerminateWorkflowExecution", domain=service.domain, **execution.name)
    heartbeat = await outcome(service.client.record_heartbeat(task.token))
    return heartbeat, await outcome(service.client.respond_completed(task.token, ""))


@behaviour("ValidationException")
async def a_malformed_token_is_invalid(service: SwfService) -> object:
    """A token has the service's own form."""
    return await outcome(service.client.record_heartbeat("nonsense"))


@behaviour("ValidationException")
async def a_result_over_the_limit_is_refused(service: SwfService) -> object:
    """The limit is 32,768 characters."""
    task, _ = await service.task()
    return await outcome(service.client.respond_completed(task.token, "x" * (MAX_RESULT_LENGTH + 1)))


@behaviour(False)
async def a_heartbeat_is_accepted_without_a_heartbeat_time_out(service: SwfService) -> object:
    """Nobody has asked for the cancellation."""
    task, _ = await service.task()
    return await service.client.record_heartbeat(task.token, "70 %")


@behaviour(["Scheduled", "Started", "Completed"])
async def heartbeats_keep_a_task_beyond_its_heartbeat_time_out(service: SwfService) -> object:
    """Nine seconds of work, with a time-out of six."""
    task, execution = await service.task(heartbeatTimeout="6")
    for _ in range(6):
        await asyncio.sleep(1.5)  # the test is about time in the service, so it must pass
        await service.client.record_heartbeat(task.token)
    await service.client.respond_completed(task.token, "")
    return await service.activity_events(execution)


@behaviour((["Scheduled", "Started", "TimedOut"], "HEARTBEAT", "70 %", _UNKNOWN))
async def a_missed_heartbeat_ends_the_task(service: SwfService) -> object:
    """The history has the last details, and a late answer is refused."""
    task, execution = await service.task(heartbeatTimeout="1")
    await service.client.record_heartbeat(task.token, "70 %")
    events = await service.closed(execution, within_seconds=_OVERDUE_SECONDS)
    ended = await service.attributes(execution, "ActivityTaskTimedOut")
    late = await outcome(service.client.respond_completed(task.token, "late"))
    return events, *fields(ended, ("timeoutType", "details")), late


@behaviour((["Scheduled", "Started", "TimedOut"], _UNKNOWN))
async def a_task_over_its_start_to_close_time_out_is_ended(service: SwfService) -> object:
    """Heartbeats do not prolong it."""
    task, execution = await service.task(startToCloseTimeout="1")
    events = await service.closed(execution, within_seconds=_LATE_SECONDS)
    return events, await outcome(service.client.respond_completed(task.token, "late"))


@behaviour((["Scheduled", "Started", "TimedOut"], _UNKNOWN))
async def a_task_over_its_schedule_to_close_time_out_is_ended(service: SwfService) -> object:
    """Waiting and work together."""
    task, execution = await service.task(scheduleToCloseTimeout="2")
    events = await service.closed(execution, within_seconds=_LATE_SECONDS)
    return events, await outcome(service.client.respond_completed(task.token, "late"))


@behaviour(["Scheduled", "TimedOut"])
async def a_task_that_waits_beyond_its_schedule_to_start_time_out_ends(service: SwfService) -> object:
    """No worker gets it."""
    execution = await service.scheduled(scheduleToStartTimeout="1")
    return await service.closed(execution, within_seconds=_LATE_SECONDS)


@behaviour((True, "accepted", ["Scheduled", "Started", "CancelRequested", "Canceled"]))
async def a_requested_cancellation_reaches_the_worker(service: SwfService) -> object:
    """The answer to a heartbeat tells it; the worker confirms it."""
    task, execution = await service.task()
    request = service.call("RequestCancelWorkflowExecution", domain=service.domain, **execution.name)
    if (refused := await outcome(request)) != "accepted":
        return refused
    attributes = {"activityId": "a"}
    cancel = {"decisionType": "RequestCancelActivityTask", "requestCancelActivityTaskDecisionAttributes": attributes}
    await service.decide(execution, cancel)
    asked = await service.client.record_heartbeat(task.token)
    confirmed = await outcome(service.client.respond_canceled(task.token, ""))
    return asked, confirmed, await service.activity_events(execution)


@behaviour((0, 3, 2, 2))
async def the_count_is_of_the_waiting_tasks(service: SwfService) -> object:
    """A list that was never used has none, and a task that a worker has is not counted."""
    never = await service.client.count_pending_activity_tasks(service.domain, new_name())
    first = await service.scheduled()
    for _ in range(2):
        await service.scheduled(task_list=first.task_list)
    three = await service.client.count_pending_activity_tasks(service.domain, first.task_list)
    task = await service.take(first)
    two = await service.client.count_pending_activity_tasks(service.domain, first.task_list)
    await service.client.respond_completed(task.token, "")
    still = await service.client.count_pending_activity_tasks(service.domain, first.task_list)
    return never.count, three.count, two.count, still.count


@behaviour((_UNKNOWN, _UNKNOWN, _UNKNOWN))
async def a_missing_domain_is_refused(service: SwfService) -> object:
    """A poll, a count and a description; the poll's refusal comes at once."""
    missing = new_name()
    return (
        await outcome(service.client.poll_for_activity_task(missing, "work")),
        await outcome(service.client.count_pending_activity_tasks(missing, "work")),
        await outcome(service.client.describe_domain(missing)),
    )


@behaviour("TypeAlreadyExistsFault")
async def a_type_that_is_registered_again_is_refused(service: SwfService) -> object:
    """Workers take this for success."""
    return await outcome(service.client.register_activity_type(service.domain, "work", "1", ActivityDefaults()))
