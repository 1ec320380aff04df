"""Real child processes, and all that a handler can do to one."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from activity_worker.activity import TaskRequest, TaskResponseToolkit
from activity_worker.contract import LeasedTask
from activity_worker.errors import (
    CancellationRequestedError,
    DeadlineExceededError,
    OutputNotJsonError,
    ResponseAlreadySentError,
    TaskCancelledError,
    error_name,
)
from activity_worker.events import EventEmitter
from activity_worker.runtime.cancellation import CancellationSignal, CancelReason
from activity_worker.runtime.failure import cause_of
from activity_worker.subprocess.oom import OomKillCounter
from activity_worker.subprocess.process import HandlerUnusableError, ProcessExit
from activity_worker.subprocess.runner import SubprocessRunner
from activity_worker.subprocess.session import HandlerExitedError
from tests.eventually import eventually
from tests.faults.lateness import measured_lateness

from .process import HANDLERS, ROOT


@dataclass(frozen=True)
class Worker:
    """The worker that a runner belongs to."""

    worker_name: str = "pod:abcde"
    activity_arn: str = "arn"


class Channel:
    """A source's channel that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.beats = 0

    async def heartbeat(self) -> None:
        self.beats += 1

    def heartbeat_soon(self) -> None:
        self.beats += 1

    async def succeed(self, output: str) -> None:
        self.calls.append(("success", output))

    async def fail(self, error: str, cause: str) -> None:
        self.calls.append(("failure", error, cause))

    async def confirm_cancellation(self, details: str) -> None:
        self.calls.append(("cancelled", details))


class Run:
    """One task for a runner."""

    def __init__(self, runner: SubprocessRunner, **task_input: Any) -> None:
        text = json.dumps(task_input)
        self.channel, self.signal = Channel(), CancellationSignal()
        request = TaskRequest(Worker(), LeasedTask("token", text), json.loads(text))
        self.respond = TaskResponseToolkit(request, self.channel, events=EventEmitter(), signal=self.signal)
        self.task = asyncio.create_task(runner.run(request, self.respond))

    def cancel(self, reason: CancelReason, detail: str = "") -> None:
        """End the task as a worker does: first the signal, then the cancellation."""
        self.signal.cancel(reason, detail)
        self.task.cancel()

    @property
    def output(self) -> Any:
        """Return the output that the service got."""
        assert self.respond.response is not None
        return self.respond.response.output


Start = Callable[..., Any]


@pytest.fixture
async def start(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    runners: list[SubprocessRunner] = []

    async def started(name: str, **options: Any) -> SubprocessRunner:
        runner = SubprocessRunner(f"{HANDLERS}:{name}", **options)
        runners.append(runner)
        await runner.start()
        return runner

    yield started
    for runner in runners:
        await runner.stop()


async def written(file: Path) -> str:
    """Wait until a handler has written `file`; return its text."""
    await eventually(f"{file.name} is written", lambda: file.exists() and file.stat().st_size > 0)
    return text_of(file)


async def gone(pid: int) -> None:
    """Wait until no process has this id; a zombie of another parent counts as ended."""
    await eventually(f"process {pid} has ended", lambda: not runs(pid))


def runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in text_of(Path(f"/proc/{pid}/status"))
    except OSError:
        return False


def text_of(file: Path) -> str:
    return file.read_text()


async def test_plain_function_runs_in_its_own_process(start: Start) -> None:
    runner = await start("doubles")
    run = Run(runner, n=21)
    await run.task

    assert run.output == {"doubled": 42, "pid": runner.pid}
    assert runner.pid != os.getpid()


async def test_coroutine_function_runs_in_its_own_process(start: Start) -> None:
    run = Run(await start("doubles_async"), n=4)
    await run.task

    assert run.output == 8


async def test_handler_answers_through_the_pipe(start: Start) -> None:
    run = Run(await start("answers"), a=1)
    await run.task

    assert (run.output, run.channel.beats) == ({"answered": {"a": 1}}, 1)
    assert run.respond.progress is not None
    assert run.respond.progress.details == {"done": 1}


async def test_finished_child_is_not_killed_because_the_service_is_slow(start: Start) -> None:
    runner = await start("doubles_async", cancel_grace_seconds=0.0)
    child, answering, answer = runner.pid, asyncio.Event(), asyncio.Event()
    run = Run(runner, n=4)

    async def slow(output: str) -> None:
        answering.set()
        await answer.wait()

    run.channel.succeed = slow  # type: ignore[method-assign]
    await answering.wait()
    run.signal.cancel(CancelReason.DEADLINE)
    await asyncio.sleep(0)
    answer.set()
    await run.task
    after = Run(runner, n=5)
    await after.task

    assert (run.output, after.output, runner.pid) == (8, 10, child)


async def test_handler_fails_its_task_through_the_pipe(start: Start) -> None:
    run = Run(await start("answers_async"))
    await run.task

    assert run.channel.calls == [("failure", "Custom.Error", "because")]


async def test_second_answer_is_refused_as_in_process(start: Start) -> None:
    run = Run(await start("answers_twice"))
    with pytest.raises(ResponseAlreadySentError):
        await run.task

    assert run.output == 1


async def test_late_answer_to_a_task_does_not_conclude_the_next_one(start: Start) -> None:
    runner = await start("answers_too_late")
    first = Run(runner)
    await first.task
    assert first.respond.response is None
    second = Run(runner)
    await second.task

    assert second.channel.calls == [("success", '"ResponseAlreadySentError"')]
    assert (first.channel.calls, second.channel.beats) == ([], 0)


async def test_exception_arrives_with_its_name_message_and_place(start: Start) -> None:
    run = Run(await start("throws"))
    with pytest.raises(Exception, match="no such thing") as caught:
        await run.task

    assert error_name(caught.value) == "LookupError"
    assert "handlers.py" in cause_of(caught.value)
    assert "children.py" not in cause_of(caught.value)


async def test_failure_by_name_arrives_unchanged(start: Start) -> None:
    run = Run(await start("fails_by_name"))
    with pytest.raises(Exception, match="none left") as caught:
        await run.task

    assert (error_name(caught.value), cause_of(caught.value)) == ("Shop.SoldOut", "none left")


async def test_output_that_is_not_json_is_reported(start: Start) -> None:
    with pytest.raises(OutputNotJsonError, match="set"):
        await Run(await start("returns_a_set")).task


async def test_module_is_imported_once_for_many_tasks(start: Start) -> None:
    runner = await start("counts")
    runs = [Run(runner) for _ in range(1)]
    for _ in range(2):
        await runs[-1].task
        runs.append(Run(runner))
    await runs[-1].task

    assert [run.output for run in runs] == [1, 2, 3]


async def test_oom_killer_prefers_the_child_and_ctrl_c_does_not_reach_it(start: Start) -> None:
    run = Run(await start("tells_where"))
    await run.task

    assert run.output == {"oom": "1000", "session": True}


@pytest.mark.parametrize(
    ("handler", "how"),
    [("exits", "exited with code 7"), ("crashes", "SIGSEGV"), ("is_killed", "SIGKILL")],
)
async def test_child_that_ends_fails_its_own_task_and_is_replaced(start: Start, handler: str, how: str) -> None:
    runner = await start(handler)
    first = runner.pid
    with pytest.raises(HandlerExitedError, match=how) as caught:
        await Run(runner).task
    assert error_name(caught.value) == "ActivityPool.HandlerExited"

    with pytest.raises(HandlerExitedError):
        await Run(runner).task
    assert runner.pid != first


async def test_oom_kill_differs_from_another_kill(start: Start, tmp_path: Path) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("oom_kill 0\n")
    endings: list[ProcessExit] = []
    runner = await start("is_killed", oom_kills=OomKillCounter(tmp_path), on_death=endings.append)
    with pytest.raises(HandlerExitedError, match="from outside"):
        await Run(runner).task
    counter.write_text("oom_kill 1\n")
    with pytest.raises(HandlerExitedError, match="out of memory; raise its limit"):
        await Run(runner).task

    await eventually(
        "the second process ran out of memory", lambda: [ending.out_of_memory for ending in endings] == [False, True]
    )


async def test_exit_by_exception_is_an_ordinary_failure(start: Start) -> None:
    runner = await start("raises_system_exit")
    first = runner.pid
    with pytest.raises(Exception, match="3") as caught:
        await Run(runner).task

    assert (error_name(caught.value), runner.pid) == ("SystemExit", first)


async def test_idle_child_that_is_killed_is_replaced_before_the_next_task(start: Start) -> None:
    runner = await start("doubles")
    first = runner.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await gone(first)
    run = Run(runner, n=1)
    await run.task

    assert run.output["pid"] not in {first, None}


@pytest.mark.parametrize("handler", ["hangs", "hangs_politely", "holds_the_interpreter"])
async def test_hard_deadline_kills_any_handler(start: Start, tmp_path: Path, handler: str) -> None:
    runner = await start(handler, deadline_seconds=0.5)
    run = Run(runner, started=str(tmp_path / "started"), file=str(tmp_path / "file"))
    with pytest.raises(DeadlineExceededError, match=r"longer than 0\.5 s") as caught:
        await run.task

    assert error_name(caught.value) == "ActivityPool.DeadlineExceeded"
    await gone(int(text_of(tmp_path / "started")))


async def test_lost_lease_ends_a_coroutine_and_keeps_its_child(start: Start, tmp_path: Path) -> None:
    runner = await start("hangs_politely")
    before = runner.pid
    run = Run(runner, started=str(tmp_path / "started"), file=str(tmp_path / "file"))
    await written(tmp_path / "started")
    run.cancel(CancelReason.LEASE_LOST, "TaskTimedOut")
    with pytest.raises(asyncio.CancelledError):
        await run.task

    assert text_of(tmp_path / "file") == "ended by itself"
    assert runner.pid == before


async def test_cancellation_that_arrives_with_its_task_keeps_the_child(start: Start, tmp_path: Path) -> None:
    """The process ended. A task whose cancellation was only requested then went to the next process, and so on."""
    runner = await start("hangs_politely")
    pid = runner.pid
    os.kill(pid, signal.SIGSTOP)
    run = Run(runner, started=str(tmp_path / "started"), file=str(tmp_path / "file"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    run.cancel(CancelReason.REQUESTED, "the decider asks for it")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGCONT)
    with pytest.raises(CancellationRequestedError, match="the decider asks for it"):
        await asyncio.wait_for(run.task, 60.0)

    assert runner.pid == pid


async def test_plain_function_gets_the_reason_of_its_cancellation(start: Start, tmp_path: Path) -> None:
    run = Run(await start("watches_the_signal"), started=str(tmp_path / "started"), file=str(tmp_path / "file"))
    await written(tmp_path / "started")
    run.cancel(CancelReason.LEASE_LOST, "TaskTimedOut")
    with pytest.raises(asyncio.CancelledError):
        await run.task

    assert text_of(tmp_path / "file") == "lease-lost: TaskTimedOut"


@pytest.mark.parametrize("handler", ["hangs", "holds_the_interpreter"])
async def test_handler_that_ignores_its_cancellation_is_killed_later(
    start: Start, tmp_path: Path, handler: str
) -> None:
    runner = await start(handler, cancel_grace_seconds=0.2)
    run = Run(runner, started=str(tmp_path / "started"))
    pid = int(await written(tmp_path / "started"))
    run.signal.cancel(CancelReason.LEASE_LOST, "TaskTimedOut")
    with pytest.raises(TaskCancelledError, match="TaskTimedOut"):
        await run.task

    await gone(pid)


async def test_handler_that_reads_no_cancellation_is_killed_too(start: Start, tmp_path: Path) -> None:
    """The cancellation is larger than the socket's buffer, and the handler keeps the reader from running."""
    runner = await start("holds_the_interpreter", cancel_grace_seconds=0.2)
    run = Run(runner, started=str(tmp_path / "started"))
    pid = int(await written(tmp_path / "started"))
    run.signal.cancel(CancelReason.LEASE_LOST, "TaskTimedOut" * 200_000)
    with pytest.raises(TaskCancelledError, match="TaskTimedOut"):
        await run.task

    await gone(pid)


async def test_killed_childs_own_children_are_killed_too(start: Start, tmp_path: Path) -> None:
    runner = await start("leaves_a_grandchild")
    run = Run(runner, file=str(tmp_path / "grandchild"))
    grandchild = int(await written(tmp_path / "grandchild"))
    run.signal.cancel(CancelReason.DEADLINE)
    with pytest.raises(DeadlineExceededError):
        await run.task

    await gone(grandchild)


async def test_many_progress_calls_become_a_few_heartbeats(start: Start) -> None:
    run = Run(await start("floods"))
    await run.task

    assert run.output == 200_000
    assert 1 <= run.channel.beats <= 20


async def test_many_calls_are_answered_in_order(start: Start) -> None:
    run = Run(await start("floods_with_calls"))
    await run.task

    assert (run.output, run.channel.beats) == (5_000, 5_000)


async def test_supervisors_loop_runs_while_a_handler_holds_the_interpreter(start: Start, tmp_path: Path) -> None:
    run = Run(await start("holds_the_interpreter"), seconds=5, started=str(tmp_path / "started"))
    await written(tmp_path / "started")
    async with measured_lateness() as lateness:
        await run.task

    assert run.output == 0
    assert len(lateness.late) >= 10
    assert max(late for _, late in lateness.late) < 4


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("tests.integration.worker.nowhere:handle", "no module named 'tests.integration.worker.nowhere'"),
        (f"{HANDLERS}:nothing", "has no 'nothing'"),
        (f"{HANDLERS}:CALLS", "CALLS"),
        ("tests.integration.worker.broken_handler:handle", "RuntimeError: the database is not there"),
    ],
)
async def test_handler_that_cannot_be_loaded_is_reported_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, handler: str, message: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with pytest.raises(HandlerUnusableError) as caught:
        await SubprocessRunner(handler).start()

    assert handler in str(caught.value)
    assert message in str(caught.value)


async def test_handler_in_its_own_process_sees_the_drain(start: Start, tmp_path: Path) -> None:
    run = Run(await start("waits_for_the_drain"), started=str(tmp_path / "started"))
    await written(tmp_path / "started")
    run.signal.set_draining(True)
    await run.task

    assert run.output == "saved"


def test_kill_by_the_worker_is_not_taken_for_lack_of_memory() -> None:
    assert str(ProcessExit(-9, by_runtime=True)) == (
        "the worker killed the handler's process, which was over its deadline or ignored its cancellation"
    )


@pytest.mark.parametrize(("kills", "usable"), [(2, True), (3, False)])
async def test_imports_that_a_signal_ends_are_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kills: int, usable: bool
) -> None:
    left = tmp_path / "left"
    left.write_text("x" * kills)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KILLED_IMPORTS", str(left))
    runner = SubprocessRunner("tests.integration.worker.killed_handler:handle")
    try:
        if usable:
            await runner.start()
        else:
            with pytest.raises(HandlerUnusableError, match="was killed by SIGSEGV"):
                await runner.start()
    finally:
        await runner.stop()
    assert left.read_text() == ""
