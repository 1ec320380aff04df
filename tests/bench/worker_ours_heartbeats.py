"""The image's supervisor with many slots and few handler processes: all tasks are leased, most wait for a process.

`python -m tests.bench.worker_ours_heartbeats URL ARN SLOTS PROCESSES`. The image has a process for each slot, but 1,000
processes do not fit a small machine. So tasks take turns in a few processes; the supervisor's polls and heartbeats are
the same.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from activity_worker.activity import TaskRequest, TaskResponseToolkit
from activity_worker.config.logging import set_up_logs
from activity_worker.config.settings import WorkerSettings
from activity_worker.config.sources import StepFunctionsSettings, region_of
from activity_worker.sources.protocol import Source
from activity_worker.sources.stepfunctions import StepFunctionsSource
from activity_worker.subprocess.runner import SubprocessRunner
from activity_worker.supervisor.supervisor import Supervisor
from activity_worker.wire.stepfunctions import StepFunctionsClient

HANDLER = "tests.bench.worker_handlers:hold_the_interpreter"


class SharedChildren:
    """A few child processes for many slots."""

    def __init__(self, count: int) -> None:
        self._children = [SubprocessRunner(HANDLER) for _ in range(count)]
        self._idle: asyncio.Queue[SubprocessRunner] = asyncio.Queue()

    async def start(self) -> None:
        """Start the children."""
        for child in self._children:
            await child.start()
            self._idle.put_nowait(child)

    async def run(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        """Wait for a free child and run the task there."""
        child = await self._idle.get()
        try:
            await child.run(request, respond)
        finally:
            self._idle.put_nowait(child)


class SharingRunner:
    """A slot's runner without a child of its own."""

    def __init__(self, shared: SharedChildren) -> None:
        self._shared = shared
        self.run = shared.run

    async def start(self) -> None:
        """Do nothing: the children are shared."""

    async def stop(self) -> None:
        """Do nothing: the children are shared."""


class SharingSupervisor(Supervisor):
    """The image's supervisor; its slots run tasks in `shared`."""

    def __init__(self, settings: WorkerSettings, source: Source, shared: SharedChildren) -> None:
        super().__init__(settings, source)
        self._slot_pool._runner_factory = lambda: SharingRunner(shared)


async def work(url: str, arn: str, slots: int, processes: int) -> None:
    """Run until killed."""
    shared = SharedChildren(processes)
    await shared.start()
    source = StepFunctionsSource(StepFunctionsClient.open(endpoint_url=url), arn)
    settings = WorkerSettings(StepFunctionsSettings(arn, region_of(arn), url), handler=HANDLER, slots=slots)
    await SharingSupervisor(settings, source, shared).run()


if __name__ == "__main__":
    set_up_logs("json")
    uvloop.run(work(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
