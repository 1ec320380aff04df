"""Definitions of tasks, and the errors for invalid ones."""

import re
from typing import Any

import pytest

from activity_worker.steps.model.definition import DEFAULT_RETRY, Call, Retry
from activity_worker.steps.model.definition_parser import DefinitionError, parse
from activity_worker.steps.model.task import Task
from activity_worker.steps.runner.tasks import Tasks


def task(*steps: Any, **more: Any) -> dict[str, Any]:
    return {"name": "order", "steps": list(steps), **more}


def test_step_may_be_just_the_name_of_its_method() -> None:
    assert parse(task("receive")).steps[0].method == Call("receive")


def test_nested_calls_of_a_step_are_parsed() -> None:
    error = {"method": "cancel", "retry": True, "check": {"method": "canceled", "retry": True, "input": {"a": "b"}}}
    step = parse(task({"method": "fulfil", "error": error, "reverse": "refund", "ignoreError": True})).steps[0]

    assert [(name, call.method) for name, call in step.calls()] == [
        ("method", "fulfil"), ("error", "cancel"), ("errorCheck", "canceled"), ("reverse", "refund"),
    ]  # fmt: skip
    assert step.call("errorCheck") == Call("canceled", {"a": "b"}, retry=DEFAULT_RETRY)
    assert step.ignore_error


def test_steps_inherit_retry_and_ignore_error_of_the_task() -> None:
    retry = {"retries": 2, "delays": ["1m"]}
    definition = parse(task("a", {"method": "b", "retry": False, "ignoreError": False}, retry=retry, ignoreError=True))

    assert [step.method.retry for step in definition.steps] == [Retry(2, (60.0,)), None]
    assert [step.ignore_error for step in definition.steps] == [True, False]


def test_retry_of_a_task_applies_to_every_call_and_allows_checks() -> None:
    def call(method: str) -> dict[str, Any]:
        return {"method": method, "check": f"{method}?"}

    step = parse(task({**call("a"), "error": call("b"), "reverse": call("c")}, retry=True)).steps[0]

    assert {name: call.retry for name, call in step.calls()} == dict.fromkeys(
        ("method", "check", "error", "errorCheck", "reverse", "reverseCheck"), DEFAULT_RETRY
    )


def test_error_of_a_missing_method_names_its_field() -> None:
    step = {"method": "a", "retry": True}
    for field in ("error", "reverse"):
        inner = {"method": "a", "retry": True, "check": "gone"}
        with pytest.raises(DefinitionError, match=f"task 't', step 1, {field}.check: there is no method 'gone'"):
            Tasks([Task("t", ["a", {**step, field: inner}], methods={"a": print})])


@pytest.mark.parametrize("steps", ["ab", {"method": "a"}, 5])
def test_steps_that_are_no_list_are_refused(steps: Any) -> None:
    with pytest.raises(DefinitionError, match="task 'x', steps: a task needs a list of steps such as"):
        Task("x", steps)


def test_method_that_is_no_function_is_refused() -> None:
    for name in ("m", "unused"):
        methods = {"m": print, name: 5}
        with pytest.raises(DefinitionError, match=rf"task 't', methods.{name}: is a function that takes .* not 5"):
            Tasks([Task("t", ["m"], methods=methods)])  # type: ignore[arg-type]


def test_two_tasks_with_one_name_are_refused() -> None:
    with pytest.raises(DefinitionError, match="task 't', name: there is a task of this name already"):
        Tasks([Task("t", ["a"], methods={"a": print}), Task("t", ["b"], methods={"b": print})])


def test_id_of_a_definition_is_a_hash_of_its_content() -> None:
    assert parse(task("a")).id == parse({"steps": ["a"], "name": "order"}).id
    assert len({parse(task("a")).id, parse(task("b")).id, parse(task("a", data={"x": 1})).id}) == 3
    assert re.fullmatch("[0-9a-f]{32}", parse(task("a")).id)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"steps": ["a"]}, "task 'None', name: a task needs a name, a non-empty string"),
        (task(), "task 'order', steps: a task needs a list of at least one step"),
        (task("a", date={}), "task 'order', date: is not a field here; there are data, ignoreError, name"),
        (task("a", data=[1]), "task 'order', data: default data is a map, not [1]"),
        (task("a", data={"x": {1, 2}}), "task 'order', definition: is stored as JSON, and this is not"),
        (task("a", 5), "task 'order', step 1, step: a step is a method's name or a map, not 5"),
        (task({"error": "x"}), "task 'order', step 0, method: is the name of a method, not None"),
        (task({"method": "a", "retry": "yes"}), "step 0, retry: is true, false or a map of retries and delays"),
        (task({"method": "a", "retry": {"retries": 0}}), "retry.retries: is a whole number of at least 1, not 0"),
        (task({"method": "a", "retry": {"delays": ["3hr"]}}), "retry.delays: '3hr' is not a span of time such as '5s'"),
        (task({"method": "a", "retry": {"delays": []}}), "retry.delays: is a list of spans of time"),
        (task({"method": "a", "check": "b"}), "check: a check is made before a retry: set retry: true beside it"),
        (task({"method": "a", "error": {"method": "b", "check": "c"}}), "step 0, error.check: a check is made before"),
        (task({"method": "a", "error": {}}), "step 0, error.method: is the name of a method, not None"),
        (task({"method": "a", "reverse": 7}), "step 0, reverse: is a method's name or a map with its own method"),
        (task({"method": "a", "reverse": {"method": "b", "error": "c"}}), "step 0, reverse.error: is not a field here"),
        (task({"method": "a", "input": ["x"]}), "step 0, input: is a map of property paths, not ['x']"),
        (task({"method": "a", "input": {"x": 1}}), "step 0, input: maps paths to paths: 1 is not a string"),
        (task({"method": "a", "output": {"x": "a..b"}}), "step 0, output: 'a..b' is not a property path"),
        (task({"method": "a", "output": {"x": "session.id"}}), "step 0, output: the session cannot be written"),
        (task({"method": "a", "ignoreError": 1}), "step 0, ignoreError: is true or false, not 1"),
        (task({"method": "a", "timeout": -1}), "step 0, timeout: -1 is not a span of time"),
        ({"name": 7, "steps": ["a"]}, "task '7', name: a task needs a name"),
        ({"name": "order", "steps": "a"}, "task 'order', steps: a task needs a list of at least one step"),
        (task("a", retry="yes"), "task 'order', retry: is true, false or a map of retries and delays, not 'yes'"),
        (task("a", ignoreError=None), "task 'order', ignoreError: is true or false, not None"),
        (task("a", {"method": "a", "async": True}), "task 'order', step 1, async: is not a field here"),
        (task({"method": "a", "error": {"method": ""}}), "step 0, error.method: is the name of a method, not ''"),
        (task({"method": "a", "reverse": {"method": "b", "input": 1}}), "step 0, reverse.input: is a map of property"),
        (task({"method": "a", "retry": True, "check": {"method": 1}}), "step 0, check.method: is the name of a method"),
        (task({"method": "a", "retry": True, "check": {"method": "b", "check": "c"}}), "step 0, check.check: is not a"),
        (
            task({"method": "a", "retry": True, "check": {"method": "b", "retry": 1}}),
            "step 0, check.retry: is true, fa",
        ),
    ],
)
def test_error_of_an_invalid_definition_names_task_step_and_field(source: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(words)):
        parse(source)


def test_definition_does_not_change_with_its_source_map() -> None:
    source: dict[str, Any] = {"name": "t", "steps": [{"method": "a"}], "data": {"x": [1]}}
    definition = parse(source)
    before = definition.id
    source["steps"].append("b")
    source["data"]["x"].append(2)

    assert (definition.id, definition.data) == (before, {"x": [1]})
