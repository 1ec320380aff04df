"""A registry of several activities in a slot's child process: each task finds its handler, typed on both sides."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from activity_worker.activity import TaskRequest, TaskResponse, TaskResponseToolkit
from activity_worker.contract import LeasedTask, ScheduledActivity
from activity_worker.errors import InputInvalidError, UnknownActivityError
from activity_worker.events import EventEmitter
from activity_worker.runtime.cancellation import CancellationSignal
from activity_worker.subprocess.process import HandlerUnusableError
from activity_worker.subprocess.runner import SubprocessRunner
from activity_worker.testing.stepfunctions import FakeSettings, StepFunctionsFake

from .process import ROOT, worker
from .test_subprocess_runner import Channel

APP = "tests.integration.worker.registry_app"
ARN = "arn:aws:states:us-east-1:123456789012:activity:"


@dataclass(frozen=True)
class Worker:
    """The worker of a task."""

    activity_arn: str
    worker_name: str = "pod:abcde"


@pytest.fixture
async def runner(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SubprocessRunner]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    runner = SubprocessRunner(f"{APP}:app")
    await runner.start()
    yield runner
    await runner.stop()


async def answer(
    runner: SubprocessRunner, polled: str, value: Any, activity: ScheduledActivity | None = None
) -> TaskResponse | None:
    """Run one task; return its answer."""
    text = json.dumps(value)
    request = TaskRequest(Worker(polled), LeasedTask("token", text, activity), value)
    respond = TaskResponseToolkit(request, Channel(), events=EventEmitter(), signal=CancellationSignal())
    async with asyncio.timeout(60):
        await runner.run(request, respond)
    return respond.response


async def test_each_task_finds_the_handler_of_its_activity(runner: SubprocessRunner) -> None:
    order = await answer(runner, f"{ARN}order", {"id": "a", "at": "2026-11-22T10:00:00Z", "price": "1.5"})
    picture = await answer(runner, f"{ARN}picture", {"name": "a", "width": 3})
    event = await answer(runner, "list", {"b": 1, "a": 2}, ScheduledActivity("event", "2"))
    answers = await answer(runner, "queue:answers:waiting", [1])

    assert order is not None
    assert picture is not None
    assert event is not None
    assert answers is not None
    assert order.output == {"id": "a", "at": "2026-11-22T10:00:00Z", "price": "3.0"}
    assert picture.output["picture"] == {"name": "a", "width": 3}
    assert (picture.output["worker"], picture.output["cancelled"]) == ("pod:abcde", False)
    assert event.output["keys"] == ["a", "b"]
    assert event.output["id"] == picture.output["lease"]
    assert answers.output == [1]


@pytest.mark.parametrize(
    ("activity", "problem"),
    [
        ("order", "input.id: required, but missing; input.at: expected a date and time as in RFC 3339"),
        ("picture", "input.name: Field required; input.width: Field required"),
    ],
)
async def test_input_that_does_not_fit_crosses_the_pipe(runner: SubprocessRunner, activity: str, problem: str) -> None:
    with pytest.raises(InputInvalidError) as caught:
        await answer(runner, f"{ARN}{activity}", {"at": "secret"})

    assert str(caught.value) == problem


async def test_unknown_activity_fails_its_task_only(runner: SubprocessRunner) -> None:
    with pytest.raises(UnknownActivityError, match="the registry has order, picture, event@2, answers"):
        await answer(runner, f"{ARN}nowhere", {})

    assert await answer(runner, f"{ARN}answers", 1) is not None


async def test_handler_without_a_form_ends_the_start_with_the_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    with pytest.raises(HandlerUnusableError, match=r"wrong: the parameter 'second'.*\n.*def handle\(job: Job\)"):
        await SubprocessRunner(f"{APP}:wrong").start()


async def test_invalid_input_fails_the_task_with_path_and_rule() -> None:
    async with StepFunctionsFake() as fake:
        arn = fake.create_activity("picture")
        (task,) = fake.schedule(arn, '{"name": "secret", "width": "secret"}')
        arguments = ("run", f"{APP}:app", "--activity-arn", arn, "--endpoint-url", fake.url)
        async with worker(*arguments) as running:
            await fake.until(lambda: task.state == "failed")
            await running.line_with("task failed as ActivityPool.InputInvalid")

    assert (task.error, task.conclusions) == ("ActivityPool.InputInvalid", 1)
    assert task.cause.startswith("input.width: Input should be a valid integer")
    assert not any("secret" in text for text in (task.cause, *running.lines))


async def test_resources_of_a_worker_open_once_and_close_at_its_stop(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with StepFunctionsFake(settings=FakeSettings(poll_hold_seconds=1.0)) as fake:
        arn = fake.create_activity("work")
        tasks = fake.schedule(arn, "{}", count=2)
        arguments = ("run", f"{APP}:served", "--activity-arn", arn, "--endpoint-url", fake.url)
        async with worker(*arguments, env={"JOURNAL": str(journal)}) as running:
            await fake.until(lambda: all(task.ended_at is not None for task in tasks))
            running.process.terminate()
            assert await running.exit_code() == 0

    assert [json.loads(task.output) for task in tasks] == ["opened "] * 2
    assert journal.read_text() == "opened closed"


async def test_worker_whose_resource_does_not_open_ends_and_says_why() -> None:
    async with StepFunctionsFake() as fake:
        arn = fake.create_activity("work")
        arguments = ("run", f"{APP}:unreachable", "--activity-arn", arn, "--endpoint-url", fake.url)
        async with worker(*arguments) as running:
            assert await running.exit_code() == 1

    assert "the resource journal: ConnectionError: the database does not answer" in "".join(running.lines)
    assert fake.counts.get("call:GetActivityTask", 0) == 0
