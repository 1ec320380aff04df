"""The benchmark of heartbeats starts few handler processes for many slots."""

import asyncio

from activity_worker.config.settings import WorkerSettings
from activity_worker.config.sources import StepFunctionsSettings
from activity_worker.sources.memory import MemorySource
from tests.bench.worker_ours_heartbeats import SharedChildren, SharingSupervisor


class CountedChildren(SharedChildren):
    """Children that a test counts; none is started."""

    def __init__(self) -> None:
        super().__init__(0)
        self.ran = asyncio.Event()

    async def run(self, *_: object) -> None:
        self.ran.set()


async def test_slots_run_their_tasks_in_the_shared_processes() -> None:
    source, shared = MemorySource(hold_seconds=0.01), CountedChildren()
    settings = WorkerSettings(StepFunctionsSettings("arn"), handler="no.such:handler", slots=3)
    supervisor = SharingSupervisor(settings, source, shared)
    source.put("1")
    running = asyncio.create_task(supervisor.run())
    async with asyncio.timeout(10):
        await shared.ran.wait()
    supervisor.request_stop()
    assert await running == 0
