"""The arguments of a task as the JSON text for a handler's process, and the published client's decorator shape."""

import json
import math

import msgpack
import pytest

from activity_worker import Activities, InputInvalidError, Retry, TaskNamespace
from activity_worker.contract import LeasedTask, ScheduledActivity
from activity_worker.handlers.table import HandlerTable
from activity_worker.task import TaskRequest
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded
from activity_worker.taskbroker.protocol.arguments import from_json, to_json
from activity_worker.taskbroker.protocol.parameters import decode_parameters


class Worker:
    """A slot, for the request of a task."""

    worker_name = "w"
    activity_arn = "*/*"


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ([], {}),
        ([], {"n": 7, "é": [None, True, 1.5, "x"]}),
        ([1, {"a": {"b": [b"\x00\xff"]}}], {"k": b""}),
        ([], {"args": 1, "kwargs": 2}),
        ([], {"$bytes": "QQ=="}),
        ([{1: "one", "$float": 2, (1, 2): "pair"}], {}),
        ([math.inf, -math.inf], {}),
    ],
)
def test_arguments_survive_the_way_to_the_process(args: list[object], kwargs: dict[str, object]) -> None:
    assert from_json(to_json(args, kwargs)) == (args, kwargs)


def test_keyword_arguments_alone_are_the_input() -> None:
    assert json.loads(to_json([], {"n": 7})) == {"n": 7}
    assert json.loads(to_json([1], {"n": 7})) == {"args": [1], "kwargs": {"n": 7}}


def test_value_that_is_no_argument_is_refused() -> None:
    found = decode_parameters(msgpack.packb({"args": [msgpack.ExtType(5, b"x")], "kwargs": {}}), {})
    with pytest.raises(ValueError, match="a value of type ExtType is no argument"):
        to_json(found.args, found.kwargs)
    for text in ("[1]", "nothing"):
        with pytest.raises(ValueError, match=r"arguments|Expecting"):
            from_json(text)


def request(text: str) -> TaskRequest:
    return TaskRequest(Worker(), LeasedTask("t", text, ScheduledActivity("send", "", namespace="mail")), None)


def test_registered_function_gets_the_arguments_and_stays_callable() -> None:
    app, calls = Activities(), list[object]()
    mail = TaskNamespace(app, "mail", retry=Retry(attempts=4, delay=9))

    @mail.register(name="send", processing_deadline_duration=30, expires=60, dead_letter=True)
    def send(order: int, *more: bytes, urgent: bool = False) -> str:
        calls.append((order, more, urgent))
        return "sent"

    handler = HandlerTable(app).find("*/*", "send", "", "mail")
    returned = handler.prepare(request(to_json([1, b"x"], {"urgent": True})), None, None, {})()

    assert (calls, returned) == ([(1, (b"x",), True)], None)
    assert send(2) == "sent"
    assert handler.activity.retry == Retry(attempts=4, delay=9)
    task = send.new([1], {"urgent": True}, countdown=5)
    assert (task.namespace, task.taskname, task.args, task.kwargs) == ("mail", "send", [1], {"urgent": True})
    assert (task.processing_deadline, task.expires, task.delay) == (30, 60, 5)
    assert task.retry is not None
    assert (task.retry.max_attempts, task.retry.delay_on_retry) == (4, 9)
    assert task.retry.on_attempts_exceeded is OnAttemptsExceeded.DEADLETTER


def test_arguments_that_do_not_fit_name_the_function_and_no_value() -> None:
    app = Activities()

    @TaskNamespace(app, "mail").register(name="send")
    def send(order: int) -> None: ...

    handler = HandlerTable(app).find("*/*", "send", "", "mail")
    with pytest.raises(InputInvalidError, match=r"do not fit .*send: missing a required argument: 'order'"):
        handler.prepare(request(to_json([], {})), None, None, {})()


def test_task_that_runs_at_most_once_has_no_retries() -> None:
    with pytest.raises(ValueError, match="at_most_once=True has no retries"):
        TaskNamespace(Activities(), "mail", retry=Retry(attempts=2)).register(name="send", at_most_once=True)


def test_handler_of_the_namespace_goes_before_one_of_every_namespace() -> None:
    app = Activities()
    app.activity(name="send")(lambda request: "every")
    app.activity(name="send", namespace="mail")(lambda request: "mail")
    with pytest.raises(ValueError, match="namespace='mail': registered already"):
        app.activity(name="send", namespace="mail")(lambda request: "again")
    table = HandlerTable(app)

    found = [table.find("*/*", "send", "", namespace).function(None) for namespace in ("mail", "shop")]

    assert found == ["mail", "every"]
