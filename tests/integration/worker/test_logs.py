"""The log of a worker: its handler's lines with the keys of their task, and failures that can be understood."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from activity_worker.contract import Env, lease_id
from activity_worker.testing.fake_tasks import FakeTask
from activity_worker.testing.stepfunctions import FakeSettings, StepFunctionsFake

from .process import HANDLERS, WorkerProcess, worker


@pytest.fixture
async def fake() -> AsyncIterator[StepFunctionsFake]:
    async with StepFunctionsFake(settings=FakeSettings(poll_hold_seconds=1.0)) as fake:
        yield fake


async def run(
    fake: StepFunctionsFake, handler: str, last: str, *flags: str, **env: str
) -> tuple[FakeTask, WorkerProcess]:
    """Run one task; return it, and the worker once it has ended after the line with `last`."""
    arn = fake.create_activity("work")
    (task,) = fake.schedule(arn, '{"secret": "word-of-the-input"}')
    arguments = ("run", f"{HANDLERS}:{handler}", "--activity-arn", arn, "--endpoint-url", fake.url, *flags)
    async with worker(*arguments, env=env) as running:
        await running.line_with(last)
        running.process.terminate()
        assert await running.exit_code() == 0
    assert [line for line in running.lines if "word-of-the-input" in line or task.token in line] == []
    return task, running


async def test_lines_of_a_handler_have_the_keys_of_its_task(fake: StepFunctionsFake) -> None:
    task, running = await run(
        fake,
        "logs_and_prints",
        "task succeeded",
        **{Env.POOL: "resize", Env.POD_NAMESPACE: "shop", Env.POD_NAME: "w-1"},
    )
    (line,) = running.facts("resized a.png")
    keys = {"lease": lease_id(task.token), "task": "work", "pool": "resize", "namespace": "shop", "worker": "w-1"}

    assert {key: line[key] for key in keys} == keys
    assert line["slot"] == running.facts("task started")[0]["slot"]
    assert (line["level"], line["logger"], line["bucket"]) == ("info", "shop", "photos")
    assert running.facts("not at this level") == []


async def test_printed_lines_are_log_lines_with_the_same_keys(fake: StepFunctionsFake) -> None:
    task, running = await run(fake, "logs_and_prints", "task succeeded")
    lease = lease_id(task.token)

    assert [(line["logger"], line["level"], line["lease"]) for line in running.facts("printed-1")] == [
        ("stdout", "info", lease)
    ]
    assert [line["lease"] for line in running.facts("and more")] == [lease]
    assert [(line["logger"], line["level"]) for line in running.facts("to standard error")] == [("stderr", "warning")]
    (warned,) = [line for line in running.facts("") if line["logger"] == "py.warnings"]
    assert "old and gone" in warned["message"]
    (side,) = running.facts("thread side ended with an exception")
    assert "OSError: the side failed" in side["traceback"]
    assert all(line.startswith("{") for line in running.lines)


async def test_level_and_format_come_from_variables(fake: StepFunctionsFake) -> None:
    _, running = await run(
        fake,
        "logs_and_prints",
        "to standard error",
        **{Env.LOG_LEVEL: "warning", Env.LOG_FORMAT: "text"},
    )

    assert not any("resized" in line or "task started" in line for line in running.lines)
    assert any("printed-1  (lease=" in line for line in running.lines)


async def test_level_debug_shows_a_handlers_debug_lines(fake: StepFunctionsFake) -> None:
    _, running = await run(fake, "logs_and_prints", "not at this level", "--log-level", "debug")

    assert running.facts("not at this level")[0]["level"] == "debug"


def begins_in_user_code(text: str) -> bool:
    """Tell whether the first frame of each traceback is in the handlers' module, and none is ours."""
    parts = text.split("Traceback (most recent call last):\n")[1:]
    return (
        bool(parts) and all("handlers.py" in part.splitlines()[0] for part in parts) and "activity_worker/" not in text
    )


async def test_failure_is_told_with_the_users_traceback_and_its_origin(fake: StepFunctionsFake) -> None:
    task, running = await run(fake, "raises_from", "task failed as")
    (line,) = running.facts("task failed as")

    assert (line["message"], line["error"]) == ("task failed as ValueError: no such picture", "ValueError")
    assert begins_in_user_code(line["traceback"])
    assert "KeyError: 'missing part'\n\nThe above exception was the direct cause" in line["traceback"]
    assert not any("HandlerRaisedError" in text for text in running.lines)
    assert (task.error, task.cause.partition("\n")[0]) == ("ValueError", "no such picture")
    assert begins_in_user_code(task.cause)
    assert "KeyError: 'missing part'" in task.cause


@pytest.mark.parametrize(
    ("how", "message"),
    [("message", "task failed as ValueError: no such picture"), ("name", "task failed as ValueError")],
)
async def test_failures_can_be_told_with_less(fake: StepFunctionsFake, how: str, message: str) -> None:
    task, running = await run(fake, "raises_from", "task failed as", "--log-failures", how)
    (line,) = running.facts("task failed as")

    assert (line["message"], line["error"], line.get("traceback")) == (message, "ValueError", None)
    assert ("no such picture" in "".join(running.lines)) is (how == "message")
    assert begins_in_user_code(task.cause)


async def test_exception_after_the_answer_is_logged(fake: StepFunctionsFake) -> None:
    task, running = await run(fake, "answers_and_throws", "the handler raised after")
    (line,) = running.facts("the handler raised after its task had ended")

    assert line["message"].endswith("RuntimeError: after the answer")
    assert begins_in_user_code(line["traceback"])
    assert (task.state, line["lease"]) == ("succeeded", lease_id(task.token))


async def test_exception_of_a_cancelled_handler_is_logged(fake: StepFunctionsFake) -> None:
    arn = fake.create_activity("work")
    (task,) = fake.schedule(arn, "{}", timeout_seconds=1.0)
    arguments = ("run", f"{HANDLERS}:throws_when_cancelled", "--activity-arn", arn, "--endpoint-url", fake.url)
    async with worker(*arguments, "--task-heartbeat-seconds", "0.2") as running:
        line = json.loads(await running.line_with("could not clean up"))

    assert line["message"] == "the handler raised after its task had ended: RuntimeError: could not clean up"
    assert task.conclusions == 0


async def test_ready_names_what_is_polled_and_where(fake: StepFunctionsFake) -> None:
    _, running = await run(fake, "doubles", "task failed as")
    (line,) = running.facts("worker ready")

    assert line["activity"] == fake.create_activity("work")
    assert line["endpoint"] == fake.url


async def test_text_on_a_terminal_is_short(fake: StepFunctionsFake) -> None:
    _, running = await run(fake, "logs_and_prints", "task succeeded", "--log-format", "text", **{Env.POOL: "resize"})
    (line,) = [text for text in running.lines if "resized a.png" in text]

    assert "pool=" not in line
    assert "bucket=photos" in line
    assert len(_value(line, "lease")) == 8


def _value(line: str, key: str) -> Any:
    return line.partition(f"{key}=")[2].split(")")[0].split(" ")[0]
