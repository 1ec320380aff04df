"""The SWF fake: time-outs, requests to cancel, late answers, counts, decisions, and the history of all that."""

import asyncio
from typing import Any

import pytest

from activity_worker.testing import FakeActivityTask, FakeTimeouts, SwfFake, SwfFakeSettings, VirtualClock
from activity_worker.testing.fake_tasks import FakeServiceError

POLL = {"domain": "shop", "taskList": {"name": "charges"}, "identity": "w"}
UNKNOWN = "UnknownResourceFault"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def fake(clock: VirtualClock) -> SwfFake:
    made = SwfFake(clock=clock, domains=["shop"], settings=SwfFakeSettings(count_limit=3, poller_limit=2))
    made.set_up()
    return made


async def call(fake: SwfFake, operation: str, **parameters: Any) -> dict[str, Any]:
    answer = fake.answer(operation, parameters)
    return answer if isinstance(answer, dict) else await answer


async def refusal(fake: SwfFake, operation: str, **parameters: Any) -> str:
    with pytest.raises(FakeServiceError) as caught:
        await call(fake, operation, **parameters)
    return caught.value.code


async def started(fake: SwfFake, **seconds: float) -> FakeActivityTask:
    (task,) = fake.schedule("shop", "charges", "an input", timeouts=FakeTimeouts(**seconds))
    assert (await call(fake, "PollForActivityTask", **POLL))["taskToken"] == task.token
    return task


def kinds(task: FakeActivityTask) -> list[str]:
    return [event["eventType"] for event in task.workflow.history]


async def test_poll_gives_a_task_with_its_type_and_execution(fake: SwfFake) -> None:
    (task,) = fake.schedule("shop", "charges", "an input", name="charge", version="2")

    answer = await call(fake, "PollForActivityTask", **POLL)

    assert answer == {
        "taskToken": task.token,
        "activityId": task.activity_id,
        "startedEventId": 3,
        "workflowExecution": {"workflowId": task.workflow.workflow_id, "runId": task.workflow.run_id},
        "activityType": {"name": "charge", "version": "2"},
        "input": "an input",
    }
    assert kinds(task) == ["WorkflowExecutionStarted", "ActivityTaskScheduled", "ActivityTaskStarted"]


async def test_open_poll_ends_with_an_empty_token_after_its_hold(fake: SwfFake, clock: VirtualClock) -> None:
    poll = asyncio.create_task(call(fake, "PollForActivityTask", **POLL))
    await asyncio.sleep(0)
    clock.advance(59)
    await asyncio.sleep(0)
    assert not poll.done()

    clock.advance(1)

    assert (await poll)["taskToken"] == ""


async def test_pollers_beyond_the_limit_of_a_list_are_refused(fake: SwfFake) -> None:
    polls = [asyncio.create_task(call(fake, "PollForActivityTask", **POLL)) for _ in range(2)]
    await asyncio.sleep(0)

    assert await refusal(fake, "PollForActivityTask", **POLL) == "LimitExceededFault"

    fake.release_polls()
    await asyncio.gather(*polls)


async def test_missing_domain_is_an_unknown_resource(fake: SwfFake) -> None:
    elsewhere = POLL | {"domain": "nowhere"}
    assert await refusal(fake, "PollForActivityTask", **elsewhere) == UNKNOWN
    assert await refusal(fake, "CountPendingActivityTasks", **elsewhere) == UNKNOWN
    assert await refusal(fake, "DescribeDomain", name="nowhere") == UNKNOWN


async def test_task_that_no_worker_takes_times_out(fake: SwfFake, clock: VirtualClock) -> None:
    (task,) = fake.schedule("shop", "charges", timeouts=FakeTimeouts(schedule_to_start_seconds=5))

    clock.advance(4.9)
    assert task.state == "scheduled"
    clock.advance(0.1)

    assert (task.state, task.timeout_type) == ("timed_out", "SCHEDULE_TO_START")
    assert fake.queued("shop", "charges") == 0
    assert task.closing_events() == ["ActivityTaskTimedOut"]


@pytest.mark.parametrize(
    ("seconds", "kind"),
    [
        ({"start_to_close_seconds": 5}, "START_TO_CLOSE"),
        ({"schedule_to_close_seconds": 5}, "SCHEDULE_TO_CLOSE"),
        ({"heartbeat_seconds": 5}, "HEARTBEAT"),
    ],
)
async def test_late_answer_is_an_unknown_resource(
    fake: SwfFake, clock: VirtualClock, seconds: dict[str, float], kind: str
) -> None:
    task = await started(fake, **seconds)

    clock.advance(5)

    assert (task.state, task.timeout_type) == ("timed_out", kind)
    assert await refusal(fake, "RespondActivityTaskCompleted", taskToken=task.token) == UNKNOWN
    assert await refusal(fake, "RespondActivityTaskFailed", taskToken=task.token) == UNKNOWN
    assert await refusal(fake, "RecordActivityTaskHeartbeat", taskToken=task.token) == UNKNOWN
    assert task.closing_events() == ["ActivityTaskTimedOut"]


async def test_heartbeats_reset_only_the_heartbeats_clock(fake: SwfFake, clock: VirtualClock) -> None:
    task = await started(fake, heartbeat_seconds=5, start_to_close_seconds=12)

    for _ in range(3):
        clock.advance(3.9)
        assert await call(fake, "RecordActivityTaskHeartbeat", taskToken=task.token) == {"cancelRequested": False}
    assert task.state == "started"
    clock.advance(0.3)

    assert task.timeout_type == "START_TO_CLOSE"


async def test_time_out_carries_the_last_heartbeats_details(fake: SwfFake, clock: VirtualClock) -> None:
    task = await started(fake, heartbeat_seconds=5)
    await call(fake, "RecordActivityTaskHeartbeat", taskToken=task.token, details="40 %")

    clock.advance(5)

    assert task.workflow.history[-1]["activityTaskTimedOutEventAttributes"]["details"] == "40 %"


async def test_requested_cancellation_shows_in_heartbeats_and_can_be_confirmed(fake: SwfFake) -> None:
    task = await started(fake)
    unasked = await refusal(fake, "RespondActivityTaskCanceled", taskToken=task.token)
    fake.request_cancel(task)

    assert await call(fake, "RecordActivityTaskHeartbeat", taskToken=task.token) == {"cancelRequested": True}
    await call(fake, "RespondActivityTaskCanceled", taskToken=task.token, details="half done")

    assert unasked == "OperationNotPermittedFault"
    assert kinds(task)[-2:] == ["ActivityTaskCancelRequested", "ActivityTaskCanceled"]
    assert task.workflow.history[-1]["activityTaskCanceledEventAttributes"]["details"] == "half done"


async def test_cancelled_task_that_no_worker_has_is_over_at_once(fake: SwfFake) -> None:
    (task,) = fake.schedule("shop", "charges")

    fake.request_cancel(task)

    assert task.closing_events() == ["ActivityTaskCanceled"]
    assert fake.queued("shop", "charges") == 0


async def test_answers_after_the_end_of_the_execution_are_refused(fake: SwfFake) -> None:
    task = await started(fake)

    fake.terminate(task.workflow)

    assert await refusal(fake, "RespondActivityTaskCompleted", taskToken=task.token) == UNKNOWN
    assert task.closing_events() == []


async def test_second_answer_is_refused(fake: SwfFake) -> None:
    task = await started(fake)
    await call(fake, "RespondActivityTaskCompleted", taskToken=task.token, result="3")

    assert await refusal(fake, "RespondActivityTaskCompleted", taskToken=task.token, result="4") == UNKNOWN

    assert (task.result, task.closing_events()) == ("3", ["ActivityTaskCompleted"])


async def test_malformed_token_is_a_validation_error(fake: SwfFake) -> None:
    assert await refusal(fake, "RecordActivityTaskHeartbeat", taskToken="nonsense") == "ValidationException"


@pytest.mark.parametrize(
    ("operation", "field", "longest"),
    [
        ("RecordActivityTaskHeartbeat", "details", 2048),
        ("RespondActivityTaskCompleted", "result", 32_768),
        ("RespondActivityTaskFailed", "reason", 256),
        ("RespondActivityTaskFailed", "details", 32_768),
    ],
)
async def test_texts_over_their_limits_are_refused(fake: SwfFake, operation: str, field: str, longest: int) -> None:
    task = await started(fake)

    code = await refusal(fake, operation, taskToken=task.token, **{field: "x" * (longest + 1)})
    await call(fake, operation, taskToken=task.token, **{field: "x" * longest})

    assert code == "ValidationException"


async def test_count_above_the_limit_is_truncated(fake: SwfFake) -> None:
    fake.schedule("shop", "charges", count=3)
    exact = await call(fake, "CountPendingActivityTasks", **POLL)
    fake.schedule("shop", "charges")

    assert exact == {"count": 3, "truncated": False}
    assert await call(fake, "CountPendingActivityTasks", **POLL) == {"count": 3, "truncated": True}
    other = await call(fake, "CountPendingActivityTasks", domain="shop", taskList={"name": "never used"})
    assert other == {"count": 0, "truncated": False}


async def test_decider_schedules_hears_of_the_end_and_completes(fake: SwfFake) -> None:
    decider = Decider(fake)
    await decider.start()
    first = await decider.decide(decider.schedule("a"))
    token = (await call(fake, "PollForActivityTask", **POLL))["taskToken"]
    await call(fake, "RespondActivityTaskCompleted", taskToken=token, result="3")
    second = await decider.decide({"decisionType": "CompleteWorkflowExecution"})

    assert first[-1] == "DecisionTaskStarted"
    assert [kind for kind in second if kind.startswith("Activity")] == [
        "ActivityTaskScheduled",
        "ActivityTaskStarted",
        "ActivityTaskCompleted",
    ]
    execution = {"workflowId": "order-1"}
    described = await call(fake, "DescribeWorkflowExecution", domain="shop", execution=execution)
    assert described["executionInfo"]["closeStatus"] == "COMPLETED"


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"activityType": {"name": "none", "version": "1"}}, "ACTIVITY_TYPE_DOES_NOT_EXIST"),
        ({"heartbeatTimeout": None}, "DEFAULT_HEARTBEAT_TIMEOUT_UNDEFINED"),
        ({"taskList": None}, "DEFAULT_TASK_LIST_UNDEFINED"),
    ],
)
async def test_decision_that_cannot_be_done_is_an_event_with_its_cause(
    fake: SwfFake, changes: dict[str, Any], cause: str
) -> None:
    decider = Decider(fake)
    await decider.start()
    order = decider.schedule("a")
    order["scheduleActivityTaskDecisionAttributes"] |= changes

    await decider.decide(order)

    failed = fake.answer(
        "GetWorkflowExecutionHistory",
        {"domain": "shop", "execution": {"workflowId": "order-1", "runId": ""}, "reverseOrder": True},
    )
    assert isinstance(failed, dict)
    causes = [event.get("scheduleActivityTaskFailedEventAttributes", {}).get("cause") for event in failed["events"]]
    assert cause in causes


class Decider:
    """Decides for one execution."""

    def __init__(self, fake: SwfFake) -> None:
        self._fake = fake

    async def start(self) -> None:
        charge = {"domain": "shop", "name": "charge", "version": "1"}
        await call(self._fake, "RegisterActivityType", **charge, defaultTaskStartToCloseTimeout="NONE")
        await call(self._fake, "RegisterWorkflowType", domain="shop", name="order", version="1")
        await call(
            self._fake,
            "StartWorkflowExecution",
            domain="shop",
            workflowId="order-1",
            workflowType={"name": "order", "version": "1"},
            taskList={"name": "decisions"},
        )

    def schedule(self, activity_id: str) -> dict[str, Any]:
        names = ("scheduleToStartTimeout", "scheduleToCloseTimeout", "heartbeatTimeout")
        attributes = {
            "activityType": {"name": "charge", "version": "1"},
            "activityId": activity_id,
            "taskList": {"name": "charges"},
            **dict.fromkeys(names, "NONE"),
        }
        return {"decisionType": "ScheduleActivityTask", "scheduleActivityTaskDecisionAttributes": attributes}

    async def decide(self, *decisions: dict[str, Any]) -> list[str]:
        """Answer the decision task that waits; return the types of the events that it had."""
        task = await call(self._fake, "PollForDecisionTask", domain="shop", taskList={"name": "decisions"})
        await call(self._fake, "RespondDecisionTaskCompleted", taskToken=task["taskToken"], decisions=list(decisions))
        return [event["eventType"] for event in task["events"]]
