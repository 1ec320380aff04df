"""The worker's health server, which the kubelet probes."""

import time
from collections.abc import AsyncIterator

import pytest

from activity_worker.contract import WorkerState
from activity_worker.supervisor import health
from activity_worker.supervisor.health import WorkerHealthServer
from activity_worker.supervisor.metrics import WorkerMetrics

from .process import probe


class Worker:
    """The worker's state, which the server reads."""

    state = WorkerState.RUNNING
    problem = ""


@pytest.fixture
def asked() -> Worker:
    return Worker()


@pytest.fixture
async def server(asked: Worker) -> AsyncIterator[WorkerHealthServer]:
    metrics = WorkerMetrics("1.2.3", 1)
    server = WorkerHealthServer(metrics.registry, lambda: asked.state, lambda: asked.problem)
    await server.start(0, "127.0.0.1")
    yield server
    await server.stop()


@pytest.mark.parametrize("state", WorkerState)
async def test_ready_worker_has_or_takes_tasks(server: WorkerHealthServer, asked: Worker, state: WorkerState) -> None:
    asked.state = state

    assert await probe(server.port, "/readyz") == (
        200 if state in {WorkerState.RUNNING, WorkerState.DRAINING} else 503,
        f"{state.value}\n",
    )


async def test_livez_fails_and_names_a_dead_component(server: WorkerHealthServer, asked: Worker) -> None:
    assert await probe(server.port, "/livez") == (200, "ok\n")

    asked.problem = "the report loop has died"
    assert await probe(server.port, "/livez") == (503, "the report loop has died\n")


async def test_blocked_loop_is_noticed_once_it_runs_again(
    server: WorkerHealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "STUCK_AFTER_SECONDS", 0.2)
    watch = health.LoopWatch()
    time.sleep(1.5)  # noqa: ASYNC251 - the point is to hold the loop

    assert watch.late_seconds() > health.STUCK_AFTER_SECONDS
    watch.stop()


async def test_metrics_name_the_runtime(server: WorkerHealthServer) -> None:
    status, text = await probe(server.port, "/metrics")

    assert status == 200
    assert 'version="1.2.3"' in text
    assert "_created" not in text
