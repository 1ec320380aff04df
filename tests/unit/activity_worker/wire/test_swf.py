"""The SWF client sends what the service's model defines, and reads its answers."""

from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from activity_worker.contract import ScheduledActivity
from activity_worker.wire.endpoint import resolve
from activity_worker.wire.errors import WireError
from activity_worker.wire.swf import ActivityDefaults, PendingCount, SwfClient

TASK = {
    "taskToken": "one",
    "activityId": "charge-1",
    "startedEventId": 7,
    "workflowExecution": {"workflowId": "order-1", "runId": "run-1"},
    "activityType": {"name": "charge", "version": "2"},
    "input": "a plain text",
}


class ModelCaller:
    """Checks each call against botocore's model of the service, and gives the answers it was made with."""

    def __init__(self, **answers: dict[str, Any]) -> None:
        self.calls: list[tuple[str, dict[str, Any], float]] = []
        self._answers = answers
        self._model = botocore.session.Session().get_service_model("swf")

    async def call(
        self, operation: str, parameters: dict[str, Any], *, timeout_seconds: float, private: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        shape = self._model.operation_model(operation).input_shape
        report = ParamValidator().validate(parameters, shape)
        assert not report.has_errors(), report.generate_report()
        assert set(parameters) <= set(shape.members)
        assert "taskToken" not in parameters or "taskToken" in private
        self.calls.append((operation, parameters, timeout_seconds))
        return self._answers.get(operation, {})


def client_of(caller: ModelCaller) -> SwfClient:
    return SwfClient(caller)  # type: ignore[arg-type]  # it is called like one


async def test_poll_returns_the_task_with_its_type_and_execution() -> None:
    caller = ModelCaller(PollForActivityTask=TASK)

    task = await client_of(caller).poll_for_activity_task("shop", "charges", "w" * 300)

    assert task is not None
    assert (task.token, task.input) == ("one", "a plain text")
    assert task.activity == ScheduledActivity("charge", "2", "charge-1", "order-1", "run-1")
    ((_, parameters, timeout_seconds),) = caller.calls
    assert parameters == {"domain": "shop", "taskList": {"name": "charges"}, "identity": "w" * 256}
    assert timeout_seconds >= 70


@pytest.mark.parametrize("empty", [{}, {"taskToken": ""}, {"startedEventId": 0, "previousStartedEventId": 0}])
async def test_answer_without_a_token_is_an_empty_poll(empty: dict[str, Any]) -> None:
    assert await client_of(ModelCaller(PollForActivityTask=empty)).poll_for_activity_task("shop", "charges") is None


async def test_task_without_input_has_an_empty_one() -> None:
    bare = {name: value for name, value in TASK.items() if name != "input"}

    task = await client_of(ModelCaller(PollForActivityTask=bare)).poll_for_activity_task("shop", "charges")

    assert task is not None
    assert task.input == ""


async def test_heartbeat_tells_whether_cancellation_is_requested() -> None:
    assert await client_of(ModelCaller()).record_heartbeat("one") is False
    asked = ModelCaller(RecordActivityTaskHeartbeat={"cancelRequested": True})
    assert await client_of(asked).record_heartbeat("one", "40 %") is True
    assert asked.calls[0][1] == {"taskToken": "one", "details": "40 %"}


async def test_conclusions_send_the_fields_that_have_a_value() -> None:
    caller = ModelCaller()
    client = client_of(caller)

    await client.respond_completed("one", '{"size":3}')
    await client.respond_completed("one")
    await client.respond_failed("two", "OutOfStock", "no lamp is left")
    await client.respond_canceled("three", "half done")

    assert [call[:2] for call in caller.calls] == [
        ("RespondActivityTaskCompleted", {"taskToken": "one", "result": '{"size":3}'}),
        ("RespondActivityTaskCompleted", {"taskToken": "one"}),
        ("RespondActivityTaskFailed", {"taskToken": "two", "reason": "OutOfStock", "details": "no lamp is left"}),
        ("RespondActivityTaskCanceled", {"taskToken": "three", "details": "half done"}),
    ]


async def test_count_tells_whether_there_are_more() -> None:
    exact = ModelCaller(CountPendingActivityTasks={"count": 3})
    more = ModelCaller(CountPendingActivityTasks={"count": 1000, "truncated": True})

    assert await client_of(exact).count_pending_activity_tasks("shop", "charges") == PendingCount(3, False)
    assert await client_of(more).count_pending_activity_tasks("shop", "charges") == PendingCount(1000, True)


@pytest.mark.parametrize("count", [-1, "three", True, None])
async def test_answer_that_is_no_count_is_an_error(count: object) -> None:
    caller = ModelCaller(CountPendingActivityTasks={"count": count})

    with pytest.raises(WireError, match="expected a count"):
        await client_of(caller).count_pending_activity_tasks("shop", "charges")


async def test_domain_has_a_status() -> None:
    described = ModelCaller(DescribeDomain={"domainInfo": {"name": "shop", "status": "DEPRECATED"}})

    assert await client_of(described).describe_domain("shop") == "DEPRECATED"


async def test_registered_type_has_time_outs_in_seconds_or_none() -> None:
    caller = ModelCaller()
    defaults = ActivityDefaults(start_to_close_seconds=600, heartbeat_seconds=30, task_list="charges")

    await client_of(caller).register_activity_type("shop", "charge", "2", defaults)

    ((_, parameters, _),) = caller.calls
    assert parameters == {
        "domain": "shop",
        "name": "charge",
        "version": "2",
        "defaultTaskScheduleToStartTimeout": "NONE",
        "defaultTaskStartToCloseTimeout": "600",
        "defaultTaskScheduleToCloseTimeout": "NONE",
        "defaultTaskHeartbeatTimeout": "30",
        "defaultTaskList": {"name": "charges"},
    }


def test_read_time_out_below_the_services_advice_is_refused() -> None:
    with pytest.raises(ValueError, match="use 70 or more"):
        SwfClient(ModelCaller(), read_timeout_seconds=65)  # type: ignore[arg-type]  # it is not called


def test_endpoint_comes_from_the_services_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL_SWF", raising=False)
    session = botocore.session.Session()
    assert resolve(session, "swf", region="eu-west-1", endpoint_url=None).url == "https://swf.eu-west-1.amazonaws.com"
    monkeypatch.setenv("AWS_ENDPOINT_URL_SWF", "http://swf:2")
    assert resolve(session, "swf", region="eu-west-1", endpoint_url=None).url == "http://swf:2"
