"""A runner as a process: until a signal, with its probes and metrics on a port if one is given."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Collection

from activity_worker.contract import WorkerState
from activity_worker.steps.runner.observer import RunObserver
from activity_worker.steps.runner.runner import RunnerOptions
from activity_worker.steps.runner.tasks import Tasks
from activity_worker.steps.store.task_store import TaskStore


class PortError(Exception):
    """The health port cannot be listened on; the message says why."""


async def serve(tasks: Tasks, store: TaskStore, options: RunnerOptions, health_port: int | None) -> None:
    """Run what is due until SIGTERM or SIGINT, and end between two calls.

    `/livez`, `/readyz` and `/metrics` are on `health_port` (None: nowhere). Raises PortError when it cannot be had.
    """
    await tasks.sync(store)
    state = WorkerState.RUNNING
    async with _healthy(tasks.methods.tasks, lambda: state, health_port) as observer:
        runner = tasks.runner(store, options, observer)

        def stop() -> None:
            nonlocal state
            state = WorkerState.STOPPING
            runner.stop()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(number, stop)
        await runner.run()


@contextlib.asynccontextmanager
async def _healthy(
    tasks: Collection[str], state: Callable[[], WorkerState], port: int | None
) -> AsyncIterator[RunObserver | None]:
    if port is None:
        yield None
        return
    from prometheus_client import CollectorRegistry, disable_created_metrics  # noqa: PLC0415 - where they are asked for

    from activity_worker.steps.runner.metrics import StepMetrics  # noqa: PLC0415
    from activity_worker.supervisor.health import WorkerHealthServer  # noqa: PLC0415

    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    metrics = StepMetrics(registry)
    metrics.set_tasks(tasks)
    server = WorkerHealthServer(registry, state, lambda: "")
    try:
        try:
            await server.start(port)
        except (OSError, OverflowError) as error:
            raise PortError(f"--health-port {port} cannot be had: {error}") from None
        yield metrics
    finally:
        await server.stop()
