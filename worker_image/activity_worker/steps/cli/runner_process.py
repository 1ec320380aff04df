"""A runner as a process: until a signal, with its probes and metrics on a port if one is given."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Collection

from activity_worker.contract import WorkerState
from activity_worker.errors import PortError
from activity_worker.steps.model.instance import Instance, Outcome
from activity_worker.steps.runner.observer import RunObserver
from activity_worker.steps.runner.runner import RunnerOptions
from activity_worker.steps.runner.tasks import Tasks
from activity_worker.steps.store.task_store import TaskStore

log = logging.getLogger(__name__)


async def serve(tasks: Tasks, store: TaskStore, options: RunnerOptions, health_port: int | None) -> None:
    """Run what is due until SIGTERM or SIGINT, and end between two calls.

    `/livez`, `/readyz` and `/metrics` are on `health_port` (None: nowhere). Logs its start and end, and each instance
    that fails, without data. Raises PortError when the port cannot be had.
    """
    await tasks.sync(store)
    state = WorkerState.RUNNING
    async with _healthy(tasks.methods.tasks, lambda: state, health_port) as metrics:
        run_log = RunLog(metrics)
        runner = tasks.runner(store, options, run_log)
        run_log.started(options, tasks.methods.tasks, store.engine.dialect.name)

        def stop() -> None:
            nonlocal state
            state = WorkerState.STOPPING
            runner.stop()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(number, stop)
        try:
            await runner.run()
        finally:
            run_log.stopped()


class RunLog(RunObserver):
    """Logs what a runner does: its start, instances that fail, its end. Passes everything on to `metrics`, if any."""

    def __init__(self, metrics: RunObserver | None) -> None:
        self._metrics = metrics or RunObserver()
        self._calls = self._complete = self._failed = 0

    def started(self, options: RunnerOptions, tasks: Collection[str], database: str) -> None:
        """Log what the runner starts with."""
        log.info(
            "runner started",
            extra={
                "facts": {
                    "runner": options.name,
                    "tasks": ", ".join(sorted(tasks)),
                    "slots": options.slots,
                    "leaseSeconds": options.lease_seconds,
                    "store": database,
                }
            },
        )

    def stopped(self) -> None:
        """Log what the runner did."""
        facts = {"calls": self._calls, "complete": self._complete, "failed": self._failed}
        log.info("runner stopped", extra={"facts": facts})

    def claimed(self, before: Instance, after: Instance, now: float, took_seconds: float) -> None:
        """Log an instance that ends as it is taken: its call was lost too often, or it was canceled."""
        self._metrics.claimed(before, after, now, took_seconds)
        self._log_end(after)

    def called(self, before: Instance, outcome: Outcome, after: Instance, seconds: float) -> None:
        """Count a call, and log an instance that fails with it."""
        self._metrics.called(before, outcome, after, seconds)
        self._calls += 1
        self._log_end(after)

    def _log_end(self, instance: Instance) -> None:
        if not instance.complete:
            return
        self._complete += 1
        if instance.success:
            return
        # The code names the error. Its message may repeat data.
        first = next((one for one in instance.status.failures if not one.error.is_cancel), instance.status.failures[0])
        facts = {
            "instance": instance.id,
            "task": instance.task_name,
            "stepNum": first.step_num,
            "subStep": first.sub_step,
            "code": first.error.code,
        }
        if instance.status.canceled:
            log.info("instance canceled", extra={"facts": facts})
            return
        self._failed += 1
        log.warning("instance failed", extra={"facts": facts})


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
    server = WorkerHealthServer(lambda: registry, state, lambda: "")
    try:
        try:
            await server.start(port)
        except (OSError, OverflowError) as error:
            raise PortError(f"--health-port {port} cannot be had: {error}") from None
        yield metrics
    finally:
        await server.stop()
