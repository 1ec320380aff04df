"""A worker in the test's own process: supervisor, claims and reports are the product's, handlers run inline."""

from collections.abc import Callable
from typing import Any

from activity_worker.config.settings import ReportSettings, WorkerSettings
from activity_worker.handlers.signature import Handler
from activity_worker.runtime.inline_runner import InlineRunner
from activity_worker.sources.protocol import Source
from activity_worker.supervisor.report_state import Instructions
from activity_worker.supervisor.reporter import Reporter
from activity_worker.supervisor.supervisor import Supervisor
from activity_worker.wire.transport import Transport


class ClusterReporter(Reporter):
    """Reports to a Service's name, as in a pod. While `reaches` is False, no report gets through."""

    reaches: Callable[[], bool] = staticmethod(lambda: True)

    async def _connected(self) -> Transport:
        if not self.reaches():
            raise ConnectionError("this node is cut off")
        transport = await super()._connected()
        transport.address = "127.0.0.1"
        return transport


class PlayedWorker(Supervisor):
    """A worker whose handler runs in this process; `running` counts its current tasks, `ran` names all it has run.

    While `heard` is False, none of its reports arrives.
    """

    def __init__(self, settings: WorkerSettings, source: Source, handler: Callable[[Any], Any]) -> None:
        super().__init__(settings, source)
        self.running = 0
        self.ran: list[str] = []
        self.heard = True
        self._given = handler
        self._slot_pool._runner_factory = lambda: InlineRunner(self._handle())

    @property
    def asks(self) -> bool:
        """Whether it has an open poll, which may bring a task."""
        return any(worker.poller.open for worker in self._slot_pool.members)

    async def kill(self) -> None:
        """End at once like a killed process: it sends no report and awaits no task."""
        await self._slot_pool.stop(timeout_seconds=0.0, abort_polls=True)
        await self._granted_leases.close()

    def _handle(self) -> Handler:
        async def handle(request: Any) -> Any:
            self.running += 1
            self.ran.append(request.lease_id)
            try:
                return await self._given(request)
            finally:
                self.running -= 1

        return handle

    def _make_reporter(self, settings: ReportSettings | None) -> Reporter | None:
        if settings is None:
            return None

        def follow(instructions: Instructions) -> None:
            self._follow(instructions)

        reporter = ClusterReporter(settings, self._reports, self._snapshot, follow, self.metrics)
        reporter.reaches = lambda: self.heard
        return reporter
