"""Worker processes on a task store: stopped, drained, killed, and slower than their leases."""

import asyncio
import itertools
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import column, func, select, table

from activity_worker.contract import (
    EXIT_ERROR,
    EXIT_OK,
    EXIT_USAGE,
    Directive,
    Env,
    PollFault,
    Reply,
    Report,
    WorkerState,
)
from activity_worker.sources.taskstore import HOLD_SECONDS
from activity_worker.steps import Tasks, TaskStore
from activity_worker.steps.store.rows import Revision, StoredInstance
from tests.eventually import eventually
from tests.integration.steps import pool_tasks
from tests.integration.worker.fake_operator import FakeOperator
from tests.integration.worker.process import WorkerProcess, metric, probe, reporting_env, stopping, worker
from tests.servers.ports import free_port
from tests.servers.postgres import new_database, wait_for_listeners

HANDLER = "tests.integration.steps.pool_tasks"


class Shop:
    """A store, a folder for the instances' lines, and workers."""

    def __init__(self, url: str, store: TaskStore, folder: Path) -> None:
        self.url = url
        self.store = store
        self.folder = folder

    def worker(
        self, *flags: str, tasks: str = "tasks", lease: float = 60, env: dict[str, str] | None = None
    ) -> AbstractAsyncContextManager[WorkerProcess]:
        """Return a worker that runs these tasks."""
        known = {Env.STORE_URL: self.url, Env.STORE_LEASE_SECONDS: str(lease), "POOL_FOLDER": str(self.folder)}
        return worker("run", f"{HANDLER}:{tasks}", "--log-format", "json", *flags, env={**known, **(env or {})})

    async def new(self, task: str, tasks: Tasks = pool_tasks.tasks, **data: Any) -> str:
        """Create an instance."""
        return await tasks.new(self.store, task, data)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the lines of an instance."""
        return pool_tasks.lines(name, self.folder)

    async def called(self, name: str, calls: int = 1) -> dict[str, Any]:
        """Wait until `calls` calls have begun; return the last of them."""
        await eventually(f"{name} was called {calls} times", lambda: len(self._calls(name)) >= calls)
        return self._calls(name)[calls - 1]

    async def ended(self, name: str) -> StoredInstance:
        """Wait until an instance is complete; check that no two processes ran it at the same time."""

        async def complete() -> StoredInstance | None:
            stored = await self.store.get(name)
            return stored if stored.instance.complete else None

        stored = await eventually(f"instance {name} is complete", complete)
        assert not [line for line in self.lines(name) if "overlap" in line]
        return stored

    async def runners(self, name: str) -> list[str]:
        """Return the names of the workers that ran an instance, in order."""
        names = [one.runner.split(":")[0] for one in await self.store.history(name) if one.status["running"]]
        return [name for name, _ in itertools.groupby(names)]

    def effects(self, name: str) -> list[int]:
        """Return the steps of an instance's effects, in order."""
        return [line["step"] for line in self.lines(name) if "effect" in line]

    def open_gate(self) -> None:
        """Let waiting calls continue."""
        (self.folder / "gate").touch()

    def _calls(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines(name) if "call" in line]


@pytest.fixture
async def shop(server: str, tmp_path: Path) -> AsyncIterator[Shop]:
    url = await new_database(server)
    store = await TaskStore.open(url)
    (tmp_path / "shop").mkdir()
    yield Shop(url, store, tmp_path / "shop")
    await store.close()


@pytest.fixture
async def operator() -> AsyncIterator[FakeOperator]:
    operator = await FakeOperator().start()
    yield operator
    await operator.stop()


async def test_worker_runs_instances_to_their_end_and_counts_them(shop: Shop) -> None:
    port = free_port()
    walk, fails, waits = [await shop.new(task) for task in ("walk", "fails", "waits")]
    async with shop.worker("--slots", "2", "--health-port", str(port)) as running:
        assert (await shop.ended(walk)).instance.success
        assert (await shop.ended(fails)).instance.status.failures[0].error.code == "SoldOut"
        assert (await shop.ended(waits)).instance.success
        assert (shop.effects(walk), shop.effects(fails)) == ([0, 1, 2], [0, 0])
        await running.line_with("task failed as SoldOut")
        shown = (await probe(port, "/metrics"))[1]
        running.process.send_signal(signal.SIGTERM)
        assert await running.exit_code() == EXIT_OK

    calls = "activity_worker_step_calls_total"
    assert metric(shown, calls + '{outcome="returned",sub_step="method",task="walk"}') == 3
    assert metric(shown, calls + '{outcome="raised",sub_step="method",task="waits"}') == 1
    assert metric(shown, 'activity_worker_step_retries_total{sub_step="method",task="waits"}') == 1
    assert metric(shown, 'activity_worker_instance_reversals_total{task="fails"}') == 1
    assert metric(shown, 'activity_worker_instances_total{outcome="succeeded",task="walk"}') == 1
    assert metric(shown, 'activity_worker_instances_total{outcome="failed",task="fails"}') == 1
    # The retry was a claim of its own, because the slot was free meanwhile.
    assert metric(shown, "activity_worker_instance_claim_duration_seconds_count") == 4
    assert metric(shown, "activity_worker_instance_start_delay_seconds_count") == 4
    assert walk not in shown
    assert "ruby-moon" not in "".join(running.lines)


async def test_recorded_stack_of_a_failed_step_begins_in_its_method(shop: Shop) -> None:
    name = await shop.new("fails")
    async with shop.worker():
        (failure,) = (await shop.ended(name)).instance.status.failures

    first, place, *_, last = failure.error.stack.splitlines()
    assert first == "Traceback (most recent call last):"
    assert place.endswith("in refuse")
    assert "/tests/integration/steps/pool_tasks.py" in place
    assert last.endswith("FinalError: the last one has gone, and card ruby-moon is not charged")


async def test_registry_of_tasks_is_around_each_instance(shop: Shop) -> None:
    walk, fails = [await shop.new(task) for task in ("walk", "fails")]
    async with shop.worker(tasks="registered") as running:
        assert (await shop.ended(walk)).instance.success
        assert not (await shop.ended(fails)).instance.success
        await running.line_with("task failed as SoldOut")
        running.process.send_signal(signal.SIGTERM)
        assert await running.exit_code() == EXIT_OK

    (failed,) = running.facts("task failed as SoldOut")
    assert (failed["pen"], failed["execution"]) == ("blue", fails)
    assert shop.lines("around") == [{"instance": walk}, {"instance": fails}, {"closed": True}]


@pytest.mark.parametrize("step", [0, 1], ids=["a plain method", "a coroutine"])
async def test_stopped_worker_ends_between_two_calls_and_another_continues(shop: Shop, step: int) -> None:
    name = await shop.new("walk", gates=[step])
    port = free_port()
    async with shop.worker("--name", "first", "--health-port", str(port)) as first:
        await shop.called(name, step + 1)
        async with shop.worker("--name", "second") as second:
            await second.line_with("worker ready")
            await wait_for_listeners(shop.store.engine, 2)
            first.process.send_signal(signal.SIGTERM)
            await stopping(port)
            shop.open_gate()
            assert await first.exit_code() == EXIT_OK
            assert (await shop.ended(name)).instance.success

    assert shop.effects(name) == [0, 1, 2]
    assert not [line for line in shop.lines(name) if "asked" in line]
    assert await shop.runners(name) == ["first", "second"]
    left, taken = _handover(await shop.store.history(name))
    # Far less than the lease of 60 s. Other tests check that an announcement, not a poll, causes the takeover.
    assert taken.at - left.at < HOLD_SECONDS / 2


class Orders:
    """The directives of an operator for its one worker."""

    def __init__(self, operator: FakeOperator) -> None:
        self.directive = Directive.RUN
        operator.answer = self._answer

    def _answer(self, report: Report) -> Reply:
        ack = report.events[-1].sequence if report.events else 0
        return Reply(term=1, next_report_seconds=0.1, ack=ack, directive=self.directive)


async def test_drain_directive_ends_the_task_at_its_next_call(
    shop: Shop, operator: FakeOperator, tmp_path: Path
) -> None:
    name = await shop.new("walk", gates=[0])
    orders = Orders(operator)
    async with shop.worker(env=reporting_env(operator.port, tmp_path)):
        await shop.called(name)
        orders.directive = Directive.DRAIN
        await operator.report_with(lambda report: report.state is WorkerState.DRAINING)
        shop.open_gate()
        drained = await operator.report_with(lambda report: report.state is WorkerState.DRAINED)
        left = await shop.store.get(name)

    assert (drained.busy, drained.leases) == (0, ())
    # On a busy machine the process may learn of the directive when the next call has begun.
    assert left.instance.status.step_num in {1, 2}
    assert not left.instance.status.running
    async with shop.worker():
        assert (await shop.ended(name)).instance.success
    assert shop.effects(name) == [0, 1, 2]


async def test_worker_works_again_after_its_drain_is_taken_back(
    shop: Shop, operator: FakeOperator, tmp_path: Path
) -> None:
    name = await shop.new("walk", gates=[0])
    orders = Orders(operator)
    async with shop.worker(env=reporting_env(operator.port, tmp_path)):
        await shop.called(name)
        orders.directive = Directive.DRAIN
        await operator.report_with(lambda report: report.state is WorkerState.DRAINING)
        orders.directive = Directive.RUN
        seen = len(operator.reports)
        await eventually(
            "the worker reports that it runs",
            lambda: any(one.state is WorkerState.RUNNING for one in operator.reports[seen:]),
        )
        shop.open_gate()
        assert (await shop.ended(name)).instance.success
        other = await shop.new("walk")
        assert (await shop.ended(other)).instance.success


async def test_call_beyond_the_drain_is_killed_and_checked_elsewhere(shop: Shop) -> None:
    name = await shop.new("walk", gates=[0])
    async with shop.worker("--drain-timeout-seconds", "0.2", lease=60) as first:
        pid = (await shop.called(name))["pid"]
        first.process.send_signal(signal.SIGTERM)
        assert await first.exit_code() == EXIT_OK
    assert not _runs(pid)
    shop.open_gate()
    async with shop.worker():
        assert (await shop.ended(name)).instance.success

    assert [line["sub"] for line in shop.lines(name)][:2] == ["method", "check"]
    assert shop.effects(name) == [0, 1, 2]
    lost, asked = _handover(await shop.store.history(name))
    assert asked.at - lost.at < 30.0


async def test_claim_beyond_its_deadline_is_killed_and_continued(shop: Shop) -> None:
    name = await shop.new("walk", gates=[0])
    async with shop.worker("--task-deadline-seconds", "3", lease=600) as running:
        pid = (await shop.called(name))["pid"]
        await running.line_with("task failed as ActivityPool.DeadlineExceeded")
        await eventually(f"process {pid} has ended", lambda: not _runs(pid))
        shop.open_gate()
        assert (await shop.ended(name)).instance.success

    assert [line["sub"] for line in shop.lines(name)][:2] == ["method", "check"]
    assert shop.effects(name) == [0, 1, 2]


async def test_idle_worker_stops_without_waiting_for_its_polls(shop: Shop) -> None:
    async with shop.worker("--log-format", "text") as running:
        await running.line_with("worker ready")
        began = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        assert await running.exit_code() == EXIT_OK
    assert time.monotonic() - began < HOLD_SECONDS / 2


async def test_killed_handler_costs_a_moment_and_not_a_lease(shop: Shop) -> None:
    name = await shop.new("walk", gates=[0])
    async with shop.worker(lease=600) as running:
        os.kill((await shop.called(name))["pid"], signal.SIGKILL)
        shop.open_gate()
        assert (await shop.ended(name)).instance.success
        assert len(running.children()) == 1

    assert [line["sub"] for line in shop.lines(name)][:2] == ["method", "check"]
    assert shop.effects(name) == [0, 1, 2]


async def test_killed_workers_instance_continues_after_the_lease(shop: Shop) -> None:
    name = await shop.new("walk", gates=[0])
    async with shop.worker(lease=3) as first:
        pid = (await shop.called(name))["pid"]
        first.process.kill()
        await eventually(f"process {pid} has ended", lambda: not _runs(pid))
    shop.open_gate()
    async with shop.worker(lease=3):
        assert (await shop.ended(name)).instance.success

    assert shop.effects(name) == [0, 1, 2]


async def test_stalled_worker_abandons_an_instance_that_was_taken_over(shop: Shop) -> None:
    name = await shop.new("walk", gates=[0])
    async with shop.worker("--name", "first", lease=2) as first:
        pid = (await shop.called(name))["pid"]
        first.process.send_signal(signal.SIGSTOP)
        # The lease is so long that the first worker never takes back the second one's instance.
        async with shop.worker("--name", "second", lease=30):
            assert (await shop.called(name, 2))["pid"] != pid
            first.process.send_signal(signal.SIGCONT)
            # Its call, a plain function in a thread, ends with its process.
            await eventually(f"process {pid} has ended", lambda: not _runs(pid))
            shop.open_gate()
            await eventually(
                "the second step has had its effect",
                lambda: "effect" in shop.lines(name)[-1] and shop.lines(name)[-1]["step"] == 2,
            )
        # The first worker continues to work.
        other = await shop.new("walk")
        assert (await shop.ended(other)).instance.success

    assert shop.effects(name) == [0, 1, 2]
    assert await shop.runners(name) == ["first", "second"]


async def test_worker_survives_the_loss_of_all_connections(shop: Shop) -> None:
    name = await shop.new("walk", gates=[1])
    others = select(func.pg_terminate_backend(column("pid"))).select_from(table("pg_stat_activity"))
    others = others.where(column("datname") == func.current_database(), column("pid") != func.pg_backend_pid())
    async with shop.worker():
        await shop.called(name, 2)
        async with shop.store.engine.connect() as connection:
            await connection.execute(others)
        shop.open_gate()
        assert (await shop.ended(name)).instance.success
        async with asyncio.timeout(20):
            other = await shop.new("walk")
            assert (await shop.ended(other)).instance.success

    assert shop.effects(name) == [0, 1, 2]
    assert not [line for line in shop.lines(name) if "asked" in line]


async def test_worker_without_a_cluster_runs_instances_on_a_file(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    url = f"sqlite:///{tmp_path}/tasks.db"
    store = await TaskStore.open(url)
    shop = Shop(url, store, tmp_path / "shop")
    async with shop.worker("--slots", "2") as running:
        names = [await shop.new("walk") for _ in range(6)]
        for name in names:
            assert (await shop.ended(name)).instance.success
            assert shop.effects(name) == [0, 1, 2]
        running.process.send_signal(signal.SIGTERM)
        assert await running.exit_code() == EXIT_OK
    await store.close()


async def test_method_that_holds_the_interpreter_keeps_its_lease(shop: Shop) -> None:
    name = await shop.new("gil", seconds=14)
    async with shop.worker("--name", "first", lease=6), shop.worker("--name", "second", lease=6):
        assert (await shop.ended(name)).instance.success

    assert len(await shop.runners(name)) == 1
    assert len([line for line in shop.lines(name) if "call" in line]) == 1


async def test_method_that_kills_its_process_is_repeated_with_pauses(shop: Shop) -> None:
    name = await shop.new("dies", deaths=2)
    async with shop.worker():
        assert (await shop.ended(name)).instance.success

    times = [line["at"] for line in shop.lines(name) if "call" in line]
    assert len(times) == 3
    assert times[1] - times[0] > 0.9
    assert times[2] - times[1] > 1.9


async def test_version_is_run_only_by_workers_that_have_its_methods(shop: Shop) -> None:
    of_old = await shop.new("versioned", pool_tasks.old)
    of_new = await shop.new("versioned", pool_tasks.new)
    async with shop.worker("--name", "older", tasks="old"):
        assert (await shop.ended(of_old)).instance.success
        assert not (await shop.store.get(of_new)).instance.status.running
        async with shop.worker("--name", "newer", tasks="new"):
            assert (await shop.ended(of_new)).instance.success
            # A worker with the newer code also runs old versions whose methods it has.
            again = await shop.new("versioned", pool_tasks.old)
            assert (await shop.ended(again)).instance.success

    assert await shop.runners(of_new) == ["newer"]


async def test_store_that_does_not_answer_is_reported_without_a_password(
    shop: Shop, operator: FakeOperator, tmp_path: Path
) -> None:
    url = f"postgresql://shop:hunter2@127.0.0.1:{free_port()}/shop"
    env = {**reporting_env(operator.port, tmp_path), Env.STORE_URL: url}
    async with shop.worker(env=env) as running:
        report = await operator.report_with(lambda report: report.poll_trouble is not None)
        await running.line_with("poll failed")
        reports = json.dumps([one.to_wire() for one in operator.reports])
        shown = [_command(pid) for pid in (running.process.pid, *running.children())]

    assert report.poll_trouble is not None
    assert report.poll_trouble.fault is PollFault.UNREACHABLE
    assert "hunter2" not in reports + "".join(shown) + "".join(running.lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (f"{HANDLER}:visit", "--store-url", "sqlite:////nowhere/x.db"),
            "with a task store the handler is a Tasks object",
        ),
        ((f"{HANDLER}:NO_TASKS", "--store-url", "sqlite:////nowhere/x.db"), "expected a function"),
        (
            (f"{HANDLER}:tasks", "--activity-arn", "arn:aws:states:us-east-1:123456789012:activity:x"),
            "is a Tasks object, whose instances come from a task store",
        ),
    ],
)
async def test_handler_that_does_not_fit_its_source_is_refused_at_once(arguments: tuple[str, ...], words: str) -> None:
    async with worker("run", *arguments, "--log-format", "text") as running:
        assert await running.exit_code() == EXIT_ERROR
        assert await running.line_with(words)


async def test_runner_without_a_pool_has_metrics_too(shop: Shop) -> None:
    port = free_port()
    name = await shop.new("walk")
    env = {Env.STORE_URL: shop.url, "POOL_FOLDER": str(shop.folder)}
    async with worker("steps", "run", f"{HANDLER}:tasks", "--health-port", str(port), env=env) as running:
        await shop.ended(name)
        shown = (await probe(port, "/metrics"))[1]
        assert await probe(port, "/readyz") == (200, "running\n")
        running.process.send_signal(signal.SIGTERM)
        assert await running.exit_code() == EXIT_OK

    assert metric(shown, 'activity_worker_instances_total{outcome="succeeded",task="walk"}') == 1
    assert metric(shown, "activity_worker_instance_claim_duration_seconds_count") == 1


async def test_port_in_use_is_reported_in_one_line(shop: Shop) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        async with worker("steps", "run", f"{HANDLER}:tasks", "--store", shop.url, "--health-port", port) as running:
            assert await running.exit_code() == EXIT_USAGE
    assert running.lines[-1].startswith(f"activity-worker steps: --health-port {port} cannot be had: ")


def _handover(history: Sequence[Revision]) -> tuple[Revision, Revision]:
    """Return the revisions around the first change of runners."""
    pairs = itertools.pairwise(history)
    return next((a, b) for a, b in pairs if a.runner not in {"", b.runner} and b.runner)


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
