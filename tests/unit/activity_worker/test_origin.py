"""The context of a task: what its input says about the execution, its deadline, and Lambda's names for both."""

import datetime as dt
import json
from dataclasses import dataclass
from typing import Any

import pytest

from activity_worker import Context, MemorySource, Slot, TaskOptions
from activity_worker.contract import ScheduledActivity
from activity_worker.task import NO_ORIGIN, Origin, take_origin

EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:images:nightly"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@dataclass
class Job:
    """An input."""

    width: int


def test_origin_is_taken_out_of_the_input() -> None:
    told = {"execution": EXECUTION, "name": "nightly", "state": "Resize", "retries": 2, "traceparent": PARENT}

    value, origin = take_origin({"width": 3, "_activity": told})

    assert value == {"width": 3}
    assert origin == Origin(EXECUTION, "nightly", "Resize", 3, PARENT)


@pytest.mark.parametrize("value", [None, 3, "_activity", ["_activity"], {"width": 3}, {"_activity": "mine"}])
def test_input_without_the_object_stays_as_it_is(value: Any) -> None:
    assert take_origin(value) == (value, NO_ORIGIN)


@pytest.mark.parametrize("retries", [-1, True, "2", 1.5, None])
def test_values_of_other_types_are_left_out(retries: Any) -> None:
    value, origin = take_origin({"_activity": {"execution": 7, "state": None, "retries": retries, "more": {}}})

    assert (value, origin) == ({}, Origin())


def test_long_values_are_cut() -> None:
    _, origin = take_origin({"_activity": {"execution": "a" * 100_000}})

    assert len(origin.execution) == 2048


SCHEDULED = ScheduledActivity("resize", "", traceparent=PARENT, tracestate="a=1")


@pytest.mark.parametrize("value", [None, 3, {"width": 3}])
def test_trace_of_the_source_is_that_of_an_input_without_the_object(value: Any) -> None:
    assert take_origin(value, SCHEDULED) == (value, Origin(traceparent=PARENT, tracestate="a=1"))


def test_object_of_the_input_comes_before_the_trace_of_the_source() -> None:
    _, origin = take_origin({"_activity": {"execution": EXECUTION}}, SCHEDULED)

    assert origin == Origin(execution=EXECUTION)


async def seen_by(handler: Any, value: Any, **options: Any) -> Any:
    source = MemorySource()
    token = source.put(json.dumps(value))
    await Slot(source, handler, options=TaskOptions(**options)).run_once()
    return json.loads(source.conclusions[token].output)


async def test_context_has_the_origin_and_the_typed_input_has_not() -> None:
    def handle(job: Job, ctx: Context) -> list[Any]:
        return [job, ctx.execution, ctx.execution_name, ctx.state, ctx.attempt, ctx.traceparent]

    told = {"execution": EXECUTION, "name": "nightly", "state": "Resize", "retries": 1, "traceparent": PARENT}
    found = await seen_by(handle, {"width": 3, "_activity": told})

    assert found == [{"width": 3}, EXECUTION, "nightly", "Resize", 2, PARENT]


async def test_context_without_origin_and_deadline_says_so() -> None:
    def handle(event, context):  # type: ignore[no-untyped-def]
        return [context.execution, context.attempt, context.deadline, context.remaining_seconds()]

    assert await seen_by(handle, {}) == ["", 1, None, None]


async def test_context_has_the_deadline_also_by_lambdas_names() -> None:
    def handle(event, context):  # type: ignore[no-untyped-def]
        left = (context.deadline - dt.datetime.now(dt.UTC)).total_seconds()
        return [left, context.remaining_seconds(), context.get_remaining_time_in_millis(), context.aws_request_id]

    left, remaining, milliseconds, request_id = await seen_by(handle, {}, deadline_seconds=500.0)

    assert 400 < left <= 500
    assert 400 < remaining <= 500
    assert 400_000 < milliseconds <= 500_000
    assert len(request_id) == 32
