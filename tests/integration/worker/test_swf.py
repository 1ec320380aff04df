"""`activity-worker run` as a process on a task list of Amazon SWF, with the SWF fake and an operator for tests."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activity_worker import Conclusions
from activity_worker.contract import EXIT_ERROR, EXIT_OK, Grant, Reply, ScheduledActivity, lease_id
from activity_worker.errors import LeaseLostError
from activity_worker.testing import FakeActivityTask, FakeTimeouts, Fault, SwfFake, SwfFakeSettings
from tests.eventually import eventually
from tests.servers.ports import free_port

from .fake_operator import FakeOperator
from .process import ROOT, metric, probe, reporting_env, worker

HANDLERS = "tests.integration.worker.swf_handlers"


@pytest.fixture
async def fake() -> AsyncIterator[SwfFake]:
    async with SwfFake(settings=SwfFakeSettings(poll_hold_seconds=2.0), domains=["shop"]) as fake:
        yield fake


@pytest.fixture
async def operator() -> AsyncIterator[FakeOperator]:
    operator = await FakeOperator().start()
    yield operator
    await operator.stop()


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, str]:
    """The files of a task, as its input."""
    return {name: str(tmp_path / name) for name in ("started", "gate", "token")}


def run_of(fake: SwfFake, *more: str, handler: str = "app") -> tuple[str, ...]:
    names = ("--swf-domain", "shop", "--swf-task-list", "charges", "--region", "us-east-1")
    fast = ("--task-heartbeat-seconds", "0.2")
    return ("run", f"{HANDLERS}:{handler}", *names, "--endpoint-url", fake.url, *fast, *more)


def one(
    fake: SwfFake, name: str, value: object = None, *, version: str = "1", timeouts: FakeTimeouts | None = None
) -> FakeActivityTask:
    """Schedule an activity task whose input is `value` as JSON, a string as it is."""
    text = value if isinstance(value, str) else json.dumps(value)
    (task,) = fake.schedule("shop", "charges", text, name=name, version=version, timeouts=timeouts)
    return task


async def until_closed(fake: SwfFake, *tasks: FakeActivityTask) -> None:
    await fake.until(lambda: all(task.ended_at is not None for task in tasks))


async def until_file(path: str) -> None:
    await eventually(f"{path} exists", Path(path).exists)


async def test_handlers_are_found_by_name_and_version(fake: SwfFake) -> None:
    tasks = [one(fake, "double", 21), one(fake, "double", 21, version="2"), one(fake, "which", version="1")]
    async with worker(*run_of(fake)):
        await until_closed(fake, *tasks)

    assert [task.closing_events() for task in tasks] == [["ActivityTaskCompleted"]] * 3
    assert tasks[0].result == "42"
    assert tasks[1].result == '{"doubled":42}'
    assert json.loads(tasks[2].result) == {
        "id": tasks[2].activity_id,
        "workflow": tasks[2].workflow.workflow_id,
        "version": "1",
    }


async def test_unknown_type_fails_with_the_types_that_are_known(fake: SwfFake) -> None:
    unknown, other_version = one(fake, "triple"), one(fake, "double", 1, version="3")
    async with worker(*run_of(fake)):
        await until_closed(fake, unknown, other_version)

    assert (unknown.state, unknown.reason) == ("failed", "ActivityPool.UnknownActivity")
    assert "'triple', version '1'" in unknown.details
    assert "double@1, double@2, echo" in unknown.details
    assert "'double', version '3'" in other_version.details


async def test_cause_of_a_failure_begins_in_the_handlers_code(fake: SwfFake) -> None:
    task = one(fake, "refuse")
    async with worker(*run_of(fake)) as running:
        await until_closed(fake, task)
        await running.line_with("task failed as")
    (line,) = running.facts("task failed as")

    assert (task.reason, line["message"]) == ("LookupError", "task failed as LookupError: no such order")
    *first, place = task.details.splitlines()[:4]
    assert first == ["no such order", "", "Traceback (most recent call last):"]
    assert "/tests/integration/worker/swf_handlers.py" in place
    assert line["traceback"].splitlines()[1] == place


async def test_default_handler_takes_every_other_type(fake: SwfFake) -> None:
    known, other = one(fake, "double", 21), one(fake, "triple")
    async with worker(*run_of(fake, handler="with_default")):
        await until_closed(fake, known, other)

    assert (known.result, other.result) == ("42", '"default for triple"')


@pytest.mark.parametrize(
    ("text", "result"),
    [('{"n": 1}', '{"n":1}'), ("40", "40"), ("a plain text", '"a plain text"'), ("NaN", '"NaN"'), ("", "null")],
)
async def test_input_that_is_no_json_is_a_text(fake: SwfFake, text: str, result: str) -> None:
    task = one(fake, "echo", text)
    async with worker(*run_of(fake)):
        await until_closed(fake, task)

    assert task.result == result


async def test_cancelled_plain_function_ends_and_its_details_reach_the_decider(
    fake: SwfFake, paths: dict[str, str]
) -> None:
    task = one(fake, "watch", paths)
    async with worker(*run_of(fake)) as running:
        await until_file(paths["started"])
        await fake.until(lambda: task.heartbeats > 1)
        fake.request_cancel(task)
        await until_closed(fake, task)
        await running.line_with("task cancelled")

    assert task.closing_events() == ["ActivityTaskCanceled"]
    assert task.details == "stopped in step some"


async def test_cancelled_coroutine_ends_and_its_task_with_it(fake: SwfFake, paths: dict[str, str]) -> None:
    task = one(fake, "wait", paths)
    async with worker(*run_of(fake)):
        await until_file(paths["started"])
        fake.request_cancel(task)
        await until_closed(fake, task)
        again = one(fake, "double", 21)
        await until_closed(fake, again)

    assert task.closing_events() == ["ActivityTaskCanceled"]
    assert again.result == "42"


async def test_handler_may_finish_despite_the_request(fake: SwfFake) -> None:
    task = one(fake, "finish")
    async with worker(*run_of(fake)) as running:
        await fake.until(lambda: task.heartbeats > 0)
        fake.request_cancel(task)
        await until_closed(fake, task)
        await running.line_with("task succeeded")

    assert task.closing_events() == ["ActivityTaskCompleted"]
    assert task.result == '"finished all the same"'


async def test_child_that_dies_fails_its_task(fake: SwfFake) -> None:
    task = one(fake, "die")
    async with worker(*run_of(fake)):
        await until_closed(fake, task)

    assert (task.state, task.reason) == ("failed", "ActivityPool.HandlerExited")


async def test_result_over_the_limit_fails_the_task_and_says_so(fake: SwfFake) -> None:
    longest, too_long = one(fake, "long", 32_766), one(fake, "long", 32_767)
    async with worker(*run_of(fake)):
        await until_closed(fake, longest, too_long)

    assert (longest.state, len(longest.result)) == ("completed", 32_768)
    assert (too_long.state, too_long.reason) == ("failed", "ActivityPool.OutputTooLarge")
    assert "32769 characters, the limit of Amazon SWF is 32768" in too_long.details


async def test_long_reason_and_details_are_shortened_to_the_limits(fake: SwfFake) -> None:
    task = one(fake, "shout", 40_000)
    async with worker(*run_of(fake)):
        await until_closed(fake, task)

    assert task.closing_events() == ["ActivityTaskFailed"]
    assert task.reason == ("LongName" * 40)[:256]
    assert len(task.details) <= 32_768
    assert "bytes, trimmed" in task.details


@pytest.mark.parametrize(
    ("kind", "timeouts"),
    [
        ("START_TO_CLOSE", FakeTimeouts(start_to_close_seconds=3.0)),
        ("SCHEDULE_TO_CLOSE", FakeTimeouts(schedule_to_close_seconds=3.0)),
    ],
)
async def test_task_that_times_out_ends_its_handler_quietly(
    fake: SwfFake, paths: dict[str, str], kind: str, timeouts: FakeTimeouts
) -> None:
    port = free_port()
    async with worker(*run_of(fake, "--health-port", str(port))) as running:
        await running.line_with("worker ready")
        task = one(fake, "wait", paths, timeouts=timeouts)
        await until_file(paths["started"])
        await until_closed(fake, task)
        await running.line_with("task lost")
        again = one(fake, "double", 21)
        await until_closed(fake, again)
        _, metrics = await probe(port, "/metrics")

    assert (task.timeout_type, task.closing_events()) == (kind, ["ActivityTaskTimedOut"])
    assert task.conclusions == 0
    assert again.result == "42"
    assert metric(metrics, 'activity_worker_tasks_total{outcome="lost"}') == 1
    assert [line for line in running.lines if '"error"' in line or "Traceback" in line] == []


async def test_task_whose_heartbeats_stop_times_out_and_is_lost(fake: SwfFake, paths: dict[str, str]) -> None:
    task = one(fake, "watch", paths, timeouts=FakeTimeouts(heartbeat_seconds=2.0))
    async with worker(*run_of(fake)) as running:
        await until_file(paths["started"])
        await fake.until(lambda: task.heartbeats > 2 and bool(task.details))
        fake.inject("RecordActivityTaskHeartbeat", Fault.THROTTLE, None)
        await until_closed(fake, task)
        fake.clear_faults()
        await running.line_with("task lost")

    assert (task.timeout_type, task.closing_events()) == ("HEARTBEAT", ["ActivityTaskTimedOut"])
    ended = task.workflow.history[-1]["activityTaskTimedOutEventAttributes"]
    assert json.loads(ended["details"])["step"] >= 0, "the decider has the handler's last details"


async def test_late_answer_is_given_up_and_the_slot_goes_on(fake: SwfFake, paths: dict[str, str]) -> None:
    task = one(fake, "gate", paths, timeouts=FakeTimeouts(start_to_close_seconds=2.0))
    # The next heartbeat is far away: the answer itself is the first call after the time-out.
    async with worker(*run_of(fake, "--task-heartbeat-seconds", "600")) as running:
        await until_closed(fake, task)
        touch(paths["gate"])
        await running.line_with("task lost")
        again = one(fake, "double", 21)
        await until_closed(fake, again)

    assert (task.refused, task.closing_events()) == (1, ["ActivityTaskTimedOut"])
    assert again.result == "42"


async def test_task_that_waited_too_long_is_never_run(fake: SwfFake) -> None:
    task = one(fake, "double", 21, timeouts=FakeTimeouts(schedule_to_start_seconds=0.2))
    await until_closed(fake, task)
    async with worker(*run_of(fake)):
        again = one(fake, "double", 21)
        await until_closed(fake, again)

    assert (task.timeout_type, task.started_at) == ("SCHEDULE_TO_START", None)


async def test_stop_awaits_the_open_poll_and_the_task_that_it_brings(fake: SwfFake, paths: dict[str, str]) -> None:
    fake.settings.poll_hold_seconds = 60.0
    async with worker(*run_of(fake)) as running:
        await fake.until(lambda: fake.open_polls("shop", "charges") == 1)
        running.process.send_signal(signal.SIGTERM)
        task = one(fake, "gate", paths)
        await until_file(paths["started"])
        touch(paths["gate"])
        assert await running.exit_code() == 0

    assert task.closing_events() == ["ActivityTaskCompleted"]
    assert fake.counts.get("handed_to_nobody", 0) == 0


async def test_task_beyond_the_drain_time_out_is_failed(fake: SwfFake, paths: dict[str, str]) -> None:
    task = one(fake, "wait", paths)
    async with worker(*run_of(fake, "--drain-timeout-seconds", "0.5")) as running:
        await until_file(paths["started"])
        running.process.send_signal(signal.SIGTERM)
        assert await running.exit_code() == 0

    assert (task.state, task.reason) == ("failed", "ActivityPool.WorkerStopped")


async def test_worker_that_must_stop_fails_a_task_that_ignores_its_cancellation(
    fake: SwfFake, paths: dict[str, str]
) -> None:
    task = one(fake, "gate", paths)
    async with worker(*run_of(fake, "--drain-timeout-seconds", "0.5")) as running:
        await until_file(paths["started"])
        fake.request_cancel(task)
        before = task.heartbeats
        await fake.until(lambda: task.heartbeats > before + 1)
        running.process.send_signal(signal.SIGTERM)
        assert await running.exit_code() == 0

    assert (task.state, task.reason) == ("failed", "ActivityPool.WorkerStopped")


@pytest.mark.parametrize("operation", ["RespondActivityTaskCompleted", "PollForActivityTask"])
async def test_throttled_calls_are_repeated_until_the_task_is_closed(fake: SwfFake, operation: str) -> None:
    fake.inject(operation, Fault.THROTTLE, 3)
    task = one(fake, "double", 21)
    async with worker(*run_of(fake)):
        await until_closed(fake, task)

    assert task.closing_events() == ["ActivityTaskCompleted"]


async def test_lost_reply_to_an_answer_closes_the_task_once(fake: SwfFake) -> None:
    fake.inject("RespondActivityTaskCompleted", Fault.DROP_REPLY, 1)
    task = one(fake, "double", 21)
    async with worker(*run_of(fake)) as running:
        await until_closed(fake, task)
        await running.line_with("task lost")

    assert (task.conclusions, task.closing_events()) == (1, ["ActivityTaskCompleted"])


async def test_missing_domain_ends_a_worker_on_a_terminal_with_the_reason(fake: SwfFake) -> None:
    arguments = [each.replace("shop", "nowhere") for each in run_of(fake)]
    async with worker(*arguments) as running:
        assert await running.exit_code() == 10
        assert "Unknown domain: nowhere" in await running.line_with("poll failed")


async def test_types_with_versions_are_registered_at_the_start(fake: SwfFake) -> None:
    options = ("--swf-register-activity-types", "true", "--task-deadline-seconds", "90", "--slots", "2")
    async with worker(*run_of(fake, *options)) as running:
        await running.line_with("activity types registered")
        await running.line_with("worker ready")
    known = fake.answer("DescribeActivityType", {"domain": "shop", "activityType": {"name": "double", "version": "2"}})

    assert isinstance(known, dict)
    assert known["configuration"] == {
        "defaultTaskScheduleToStartTimeout": "NONE",
        "defaultTaskScheduleToCloseTimeout": "NONE",
        "defaultTaskStartToCloseTimeout": "90",
        "defaultTaskHeartbeatTimeout": "1",
        "defaultTaskList": {"name": "charges"},
    }
    (entry,) = running.facts("activity types registered")
    assert (entry["new"], entry["known"]) == (13, 0)


async def test_registration_without_a_versioned_type_ends_the_worker(fake: SwfFake) -> None:
    async with worker(*run_of(fake, "--swf-register-activity-types", "true", handler="double")) as running:
        assert await running.exit_code() == EXIT_ERROR
        assert "has no activity with a version" in await running.line_with("cannot be registered")

    assert "call:RegisterActivityType" not in fake.counts


async def test_refused_registration_ends_the_worker_before_its_first_poll(fake: SwfFake) -> None:
    arguments = [each.replace("shop", "nowhere") for each in run_of(fake, "--swf-register-activity-types", "true")]
    async with worker(*arguments) as running:
        assert await running.exit_code() == EXIT_ERROR
        assert "Unknown domain: nowhere" in await running.line_with("activity types cannot be registered")

    assert "call:PollForActivityTask" not in fake.counts


async def test_worker_that_is_stopped_gives_up_its_registration(fake: SwfFake) -> None:
    fake.inject("RegisterActivityType", Fault.THROTTLE, None)
    async with worker(*run_of(fake, "--swf-register-activity-types", "true")) as running:
        await eventually("it is throttled", lambda: fake.counts.get("call:RegisterActivityType", 0) > 0)
        running.process.terminate()

        assert await running.exit_code() == EXIT_OK

    assert "call:PollForActivityTask" not in fake.counts


async def test_task_that_the_operator_held_runs_and_is_concluded(
    fake: SwfFake, operator: FakeOperator, tmp_path: Path
) -> None:
    """The operator polled it while the pool had no worker: the grant says of which type it is."""
    task = one(fake, "double", 21)
    answer = fake.answer("PollForActivityTask", {"domain": "shop", "taskList": {"name": "charges"}})
    assert not isinstance(answer, dict)
    polled = await answer
    lease = lease_id(polled["taskToken"])
    activity = ScheduledActivity("double", "1", task.activity_id, task.workflow.workflow_id, task.workflow.run_id)
    operator.answer = lambda report: Reply(
        1,
        0.2,
        offers=() if lease in report.claims or report.busy or report.released else (lease,),
        granted=(Grant(lease, polled["taskToken"], polled["input"], activity),) if lease in report.claims else (),
        released=report.released,
    )
    env = reporting_env(operator.port, tmp_path)
    async with worker(*run_of(fake), env=env):
        await until_closed(fake, task)
        await eventually("the lease is released", lambda: any(lease in each.released for each in operator.reports))

    assert (task.result, task.closing_events()) == ("42", ["ActivityTaskCompleted"])


async def test_handed_over_task_is_concluded_by_the_library(
    fake: SwfFake, paths: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    port = free_port()
    async with worker(*run_of(fake, "--health-port", str(port))) as running:
        await running.line_with("worker ready")
        task = one(fake, "later", paths)
        await running.line_with("task handed over")
        again = one(fake, "double", 21)
        await until_closed(fake, again)
        _, metrics = await probe(port, "/metrics")
    async with Conclusions.of_swf(region="us-east-1", endpoint_url=fake.url) as tasks:
        assert not await tasks.heartbeat(task.token, {"step": 1})
        before = task.state
        await tasks.succeed(task.token, {"approved": True})
        with pytest.raises(LeaseLostError):
            await tasks.succeed(task.token, {"approved": False})

    assert before == "started"
    assert (task.result, task.closing_events()) == ('{"approved":true}', ["ActivityTaskCompleted"])
    assert metric(metrics, 'activity_worker_tasks_total{outcome="handed_over"}') == 1


async def test_handed_over_task_is_concluded_by_the_command(fake: SwfFake, paths: dict[str, str]) -> None:
    tasks = []
    async with worker(*run_of(fake)):
        for _ in range(3):
            tasks.append(one(fake, "later", paths))
            await eventually("the handler has handed its token away", lambda: written(paths, tasks[-1].token))
    succeeded, failed, cancelled = tasks
    fake.request_cancel(cancelled)

    assert await conclude(fake, succeeded, "success", "--output", '{"approved": true}') == (0, "", "")
    assert await conclude(fake, failed, "failure", "--error", "Refused", "--cause", "too late") == (0, "", "")
    assert await conclude(fake, cancelled, "heartbeat", "--details", "70 %") == (0, "cancellation requested\n", "")
    assert await conclude(fake, cancelled, "cancelled", "--details", "undone") == (0, "", "")
    code, _, error = await conclude(fake, failed, "success")

    assert [task.closing_events() for task in tasks] == [
        ["ActivityTaskCompleted"],
        ["ActivityTaskFailed"],
        ["ActivityTaskCanceled"],
    ]
    assert (failed.reason, failed.details, cancelled.details) == ("Refused", "too late", "undone")
    assert code == 1
    assert "UnknownResourceFault" in error
    assert failed.token not in error


def touch(path: str) -> None:
    Path(path).touch()


def written(paths: dict[str, str], token: str) -> bool:
    file = Path(paths["token"])
    return file.exists() and file.read_text() == token


async def conclude(fake: SwfFake, task: FakeActivityTask, action: str, *arguments: str) -> tuple[int, str, str]:
    """Run `activity-worker conclude` with a task's token on standard input; return code, output and errors."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "activity_worker", "conclude", action, "--service", "swf", "--token-file", "-"),
        *("--region", "us-east-1", "--endpoint-url", fake.url),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ) | {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
        cwd=ROOT,
    )
    output, errors = await process.communicate(task.token.encode() + b"\n")
    return process.returncode or 0, output.decode(), errors.decode()
