"""`activity-worker run` as a process, with the Step Functions fake and an operator for tests."""

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activity_worker.contract import (
    EXIT_ERROR,
    EXIT_POLLING,
    EXIT_USAGE,
    Directive,
    Env,
    Grant,
    Reply,
    Report,
    WorkerState,
    lease_id,
)
from activity_worker.testing import FakeSettings, Fault, StepFunctionsFake
from tests.eventually import consistently, eventually
from tests.servers.ports import free_port

from .fake_operator import FakeOperator
from .process import HANDLERS, WorkerProcess, metric, probe, reporting_env, stopping, worker


@pytest.fixture
async def fake() -> AsyncIterator[StepFunctionsFake]:
    async with StepFunctionsFake(settings=FakeSettings(poll_hold_seconds=2.0)) as fake:
        yield fake


@pytest.fixture
async def operator() -> AsyncIterator[FakeOperator]:
    operator = await FakeOperator().start()
    yield operator
    await operator.stop()


def run_of(fake: StepFunctionsFake, handler: str, *more: str) -> tuple[str, ...]:
    arn = fake.create_activity("work")
    return ("run", f"{HANDLERS}:{handler}", "--activity-arn", arn, "--endpoint-url", fake.url, *more)


class Gate:
    """A file for which the tasks of a test wait; `waits_at_the_gate` handles them."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "gate"

    @property
    def text(self) -> str:
        """Return a task's input."""
        return json.dumps({"gate": str(self._file)})

    def open(self) -> None:
        """Let the tasks continue."""
        self._file.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


async def test_worker_without_a_cluster_runs_a_handler_and_logs_it(fake: StepFunctionsFake) -> None:
    arn = fake.create_activity("work")
    (good,) = fake.schedule(arn, '{"n": 21}')
    (bad,) = fake.schedule(arn, '{"secret": "ruby-moon"}')
    async with worker(*run_of(fake, "doubles", "--log-format", "text")) as running:
        await fake.until(lambda: good.state == "succeeded" and bad.state == "failed")
        await running.line_with("task failed as KeyError")
        running.process.send_signal(signal.SIGINT)
        assert await running.exit_code() == 0

    assert json.loads(good.output)["doubled"] == 42
    assert await running.line_with("task succeeded")
    assert "seconds=" in await running.line_with("task succeeded")
    assert [line for line in running.lines if "ruby-moon" in line or good.token in line] == []


async def test_heartbeats_continue_while_the_handler_holds_the_interpreter(fake: StepFunctionsFake) -> None:
    arn = fake.create_activity("work")
    tasks = fake.schedule(arn, '{"seconds": 6}', count=2, heartbeat_seconds=10.0)
    options = ("--slots", "2", "--task-heartbeat-seconds", "0.25")
    async with worker(*run_of(fake, "holds_the_interpreter", *options)):
        await fake.until(lambda: all(task.ended_at is not None for task in tasks))

    assert [(task.state, task.heartbeats >= 8) for task in tasks] == [("succeeded", True)] * 2


async def test_invalid_token_ends_the_handler_and_the_slot_continues(fake: StepFunctionsFake, tmp_path: Path) -> None:
    arn = fake.create_activity("work")
    text = json.dumps({"file": str(tmp_path / "file"), "started": str(tmp_path / "started")})
    (spent,) = fake.schedule(arn, text, timeout_seconds=0.5)
    async with worker(*run_of(fake, "watches_the_signal", "--task-heartbeat-seconds", "0.2")) as running:
        await running.line_with("task lost")
        await eventually("the handler has made its file", (tmp_path / "file").exists)
        (again,) = fake.schedule(arn, text, timeout_seconds=0.5)
        await fake.until(lambda: again.started_at is not None)

    assert spent.conclusions == 0


@pytest.mark.parametrize(
    ("handler", "error"),
    [("exits", "ActivityPool.HandlerExited"), ("crashes", "ActivityPool.HandlerExited"), ("throws", "LookupError")],
)
async def test_handler_that_dies_fails_its_own_task(fake: StepFunctionsFake, handler: str, error: str) -> None:
    arn = fake.create_activity("work")
    tasks = fake.schedule(arn, "{}", count=2)
    async with worker(*run_of(fake, handler)) as running:
        await fake.until(lambda: all(task.state == "failed" for task in tasks))
        assert running.process.returncode is None

    assert {task.error for task in tasks} == {error}


async def test_hard_deadline_fails_a_task_that_holds_the_interpreter(
    fake: StepFunctionsFake,
) -> None:
    arn = fake.create_activity("work")
    (task,) = fake.schedule(arn, "{}")
    async with worker(*run_of(fake, "holds_the_interpreter", "--task-deadline-seconds", "0.5")):
        await fake.until(lambda: task.state == "failed")

    assert task.error == "ActivityPool.DeadlineExceeded"


async def test_sigterm_lets_the_task_finish_and_a_second_one_changes_nothing(
    fake: StepFunctionsFake, gate: Gate
) -> None:
    arn, port = fake.create_activity("work"), free_port()
    (task,) = fake.schedule(arn, gate.text)
    async with worker(*run_of(fake, "waits_at_the_gate", "--health-port", str(port))) as running:
        await running.line_with("task started")
        await _gets_sigterm(running, port)
        for _ in range(2):
            running.process.send_signal(signal.SIGTERM)
        (late,) = fake.schedule(arn, gate.text)
        gate.open()
        assert await running.exit_code() == 0

    assert (task.state, late.state) == ("succeeded", "scheduled")


async def test_open_poll_is_awaited_at_the_end_and_its_task_is_run() -> None:
    """The poll is held much longer than a slow machine takes to stop a worker and to start a task."""
    async with StepFunctionsFake(settings=FakeSettings(poll_hold_seconds=20.0)) as fake:
        arn, port = fake.create_activity("work"), free_port()
        async with worker(*run_of(fake, "sleeps", "--health-port", str(port))) as running:
            await fake.until(lambda: fake.open_polls(arn) == 1)
            await _gets_sigterm(running, port)
            await consistently("the worker's poll stays open", lambda: fake.open_polls(arn) == 1, seconds=0.3)
            (task,) = fake.schedule(arn, '{"seconds": 0.5}')
            assert await running.exit_code() == 0

    assert task.state == "succeeded"


async def test_drain_deadline_fails_unfinished_tasks_for_a_retry(
    fake: StepFunctionsFake,
) -> None:
    arn = fake.create_activity("work")
    (task,) = fake.schedule(arn, "{}")
    async with worker(*run_of(fake, "hangs_politely", "--drain-timeout-seconds", "0.3")) as running:
        await running.line_with("task started")
        running.process.send_signal(signal.SIGTERM)
        assert await running.exit_code() == 0

    assert (task.state, task.error) == ("failed", "ActivityPool.WorkerStopped")


@pytest.mark.parametrize("handler", ["hangs", "holds_the_interpreter"])
async def test_handlers_die_with_a_killed_supervisor(fake: StepFunctionsFake, tmp_path: Path, handler: str) -> None:
    arn = fake.create_activity("work")
    fake.schedule(arn, json.dumps({"started": str(tmp_path / "started")}))
    async with worker(*run_of(fake, handler)) as running:
        await eventually("the handler has started", (tmp_path / "started").exists)
        children = running.children()
        os.kill(running.process.pid, signal.SIGKILL)
        await eventually(
            "the worker's children have ended", lambda: not any(Path(f"/proc/{child}").exists() for child in children)
        )

    assert children


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("run",), EXIT_USAGE, Env.ACTIVITY_ARN),
        (("run", "nonsense"), EXIT_USAGE, "--activity-arn"),
        ((), EXIT_USAGE, "usage"),
        (("--version",), 0, ""),
    ],
)
async def test_usage_error_has_the_fix(arguments: tuple[str, ...], code: int, message: str) -> None:
    async with worker(*arguments) as running:
        assert await running.exit_code() == code

    assert message in "".join(running.lines)


async def test_handler_that_does_not_import_ends_the_worker_with_the_reason(fake: StepFunctionsFake) -> None:
    arn = fake.create_activity("work")
    arguments = ("run", "nowhere:handle", "--activity-arn", arn, "--endpoint-url", fake.url)
    async with worker(*arguments) as running:
        assert await running.exit_code() == EXIT_ERROR

    assert "nowhere:handle: no module named 'nowhere'" in "".join(running.lines)
    assert fake.counts.get("call:GetActivityTask", 0) == 0


async def test_permanent_poll_error_ends_a_worker_without_a_cluster(fake: StepFunctionsFake) -> None:
    fake.inject("GetActivityTask", Fault.DENY, None)
    async with worker(*run_of(fake, "doubles")) as running:
        assert await running.exit_code() == EXIT_POLLING


async def test_pod_reports_before_its_first_poll_and_until_its_end(
    fake: StepFunctionsFake, operator: FakeOperator, tmp_path: Path
) -> None:
    arn = fake.create_activity("work")
    polls_at_first: list[int] = []

    def answer(report: Report) -> Reply:
        polls_at_first.append(fake.counts.get("call:GetActivityTask", 0))
        return Reply(term=1, next_report_seconds=0.2)

    operator.answer = answer
    (task,) = fake.schedule(arn, '{"n": 1}')
    async with worker(*run_of(fake, "doubles"), env=reporting_env(operator.port, tmp_path)) as running:
        last = await operator.report_with(lambda report: report.counters.succeeded == 1 and report.busy == 0)
        running.process.send_signal(signal.SIGTERM)
        assert await running.exit_code() == 0

    first, end = operator.reports[0], operator.reports[-1]
    assert (first.state, polls_at_first[0], first.busy) == (WorkerState.STARTING, 0, 0)
    assert (last.state, last.counters.received) == (WorkerState.RUNNING, 1)
    assert (end.state, end.exit and end.exit.code) == (WorkerState.STOPPED, 0)
    assert [event.name for event in end.events] == [
        "worker:starting",
        "worker:running",
        "worker:stopping",
        "worker:stopped",
    ]
    assert task.token not in str(operator.reports)


async def test_crash_at_start_is_reported_before_the_process_ends(
    fake: StepFunctionsFake, operator: FakeOperator, tmp_path: Path
) -> None:
    arguments = ("run", "nowhere:handle", "--activity-arn", fake.create_activity("work"))
    async with worker(*arguments, env=reporting_env(operator.port, tmp_path)) as running:
        assert await running.exit_code() == EXIT_ERROR

    end = operator.reports[-1]
    assert (end.state, end.exit and end.exit.code) == (WorkerState.STOPPED, EXIT_ERROR)
    assert end.exit is not None
    assert "nowhere" in end.exit.error


async def test_drained_worker_is_not_ready_and_does_not_poll(
    fake: StepFunctionsFake, operator: FakeOperator, tmp_path: Path, gate: Gate
) -> None:
    arn = fake.create_activity("work")
    (task,) = fake.schedule(arn, gate.text)
    port = free_port()
    async with worker(
        *run_of(fake, "waits_at_the_gate", "--health-port", str(port)), env=reporting_env(operator.port, tmp_path)
    ) as running:
        await operator.report_with(lambda report: report.busy == 1)
        assert await probe(port, "/readyz") == (200, "running\n")

        operator.answer = lambda _: Reply(term=1, next_report_seconds=0.1, directive=Directive.DRAIN)
        await operator.report_with(lambda report: report.state is WorkerState.DRAINING)
        gate.open()
        await operator.report_with(lambda report: report.state is WorkerState.DRAINED)
        polls = fake.counts["call:GetActivityTask"]
        operator.answer = lambda _: Reply(term=1, next_report_seconds=0.1)
        await operator.further(3)
        exposition = (await probe(port, "/metrics"))[1]

        assert (await probe(port, "/readyz"))[0] == 503
        assert (await probe(port, "/livez"))[0] == 200
        assert (task.state, fake.counts["call:GetActivityTask"], fake.open_polls(arn)) == ("succeeded", polls, 0)
        assert operator.reports[-1].state is WorkerState.DRAINED
        assert metric(exposition, "activity_worker_draining") == 1.0
        assert metric(exposition, 'activity_worker_tasks_total{outcome="succeeded"}') == 1.0
        await _stops(running)


async def test_drain_can_be_taken_back_while_a_task_runs(
    fake: StepFunctionsFake, operator: FakeOperator, tmp_path: Path, gate: Gate
) -> None:
    arn = fake.create_activity("work")
    fake.schedule(arn, gate.text)
    async with worker(*run_of(fake, "waits_at_the_gate"), env=reporting_env(operator.port, tmp_path)):
        await operator.report_with(lambda report: report.busy == 1)
        operator.answer = lambda _: Reply(term=1, next_report_seconds=0.1, directive=Directive.DRAIN)
        await operator.report_with(lambda report: report.state is WorkerState.DRAINING)
        seen = len(operator.reports)
        operator.answer = lambda _: Reply(term=1, next_report_seconds=0.1)
        await eventually(
            "the worker reports that it runs",
            lambda: any(report.state is WorkerState.RUNNING for report in operator.reports[seen:]),
        )
        gate.open()
        (next_task,) = fake.schedule(arn, gate.text)
        await fake.until(lambda: next_task.state == "succeeded")

    assert operator.reports[-1].state is WorkerState.RUNNING


async def test_offered_lease_is_claimed_run_reported_and_released(
    fake: StepFunctionsFake, operator: FakeOperator, tmp_path: Path, gate: Gate
) -> None:
    arn = fake.create_activity("work")
    (task,) = fake.schedule(arn, gate.text, heartbeat_seconds=60.0)
    token, text = await _taken_by_the_operator(fake, arn)
    lease = lease_id(token)

    def answer(report: Report) -> Reply:
        granted = (Grant(lease, token, text),) if lease in report.claims else ()
        offers = () if report.leases or report.released or granted else (lease,)
        return Reply(term=1, next_report_seconds=0.1, offers=offers, granted=granted)

    operator.answer = answer
    async with worker(*run_of(fake, "waits_at_the_gate"), env=reporting_env(operator.port, tmp_path)):
        held = await operator.report_with(lambda report: any(one.id == lease for one in report.leases))
        await fake.until(lambda: task.heartbeats >= 1)
        gate.open()
        await fake.until(lambda: task.state == "succeeded")
        polls_while_it_ran = fake.counts["call:GetActivityTask"]
        released = await operator.report_with(lambda report: lease in report.released)
        operator.answer = lambda report: Reply(term=1, next_report_seconds=0.1, released=report.released)
        await operator.further(3)

    claims = [report.claims for report in operator.reports]
    assert claims[:2] == [(), (lease,)]
    assert (held.busy, held.open_polls, released.busy) == (1, 0, 0)
    assert (polls_while_it_ran <= 2, task.heartbeats >= 1, operator.reports[-1].released) == (True, True, ())


async def test_worker_continues_without_the_operator(
    fake: StepFunctionsFake, operator: FakeOperator, tmp_path: Path
) -> None:
    await operator.stop()
    arn = fake.create_activity("work")
    (task,) = fake.schedule(arn, '{"n": 1}')
    async with worker(*run_of(fake, "doubles"), env=reporting_env(operator.port, tmp_path)) as running:
        await fake.until(lambda: task.state == "succeeded")
        running.process.send_signal(signal.SIGTERM)
        assert await running.exit_code() == 0


async def _taken_by_the_operator(fake: StepFunctionsFake, arn: str) -> tuple[str, str]:
    from activity_worker.wire.stepfunctions import StepFunctionsClient

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        client = StepFunctionsClient.open(region="us-east-1", endpoint_url=fake.url)
        try:
            task = await client.get_activity_task(arn, "sentinel")
        finally:
            await client.close()
    assert task is not None
    return task.token, task.input


async def _gets_sigterm(running: WorkerProcess, port: int) -> None:
    running.process.send_signal(signal.SIGTERM)
    await stopping(port)


async def _stops(running: WorkerProcess) -> None:
    running.process.send_signal(signal.SIGTERM)
    assert await running.exit_code() == 0


async def test_metrics_count_refused_heartbeats(fake: StepFunctionsFake) -> None:
    arn = fake.create_activity("work")
    fake.inject("SendTaskHeartbeat", Fault.SERVER_ERROR, 2)
    (task,) = fake.schedule(arn, '{"seconds": 3600}', heartbeat_seconds=600)
    port = free_port()
    options = ("--task-heartbeat-seconds", "0.2", "--health-port", str(port))
    async with worker(*run_of(fake, "sleeps", *options)):
        await fake.until(lambda: task.heartbeats > 0)
        exposition = (await probe(port, "/metrics"))[1]

    assert metric(exposition, 'activity_worker_heartbeats_total{result="refused"}') >= 1.0
