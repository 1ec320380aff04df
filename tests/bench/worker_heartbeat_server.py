"""The fake, which records when it got each task's heartbeats. At SIGTERM it prints the record, as JSON.

`python -m tests.bench.worker_heartbeat_server` prints `ended_at`, `timed_out` (tasks) and `histories` (see
`worker_lateness.of_tasks`).
"""

from __future__ import annotations

import asyncio
import json
import signal

import uvloop

from activity_worker.testing import FakeTask, StepFunctionsFake


class NotingFake(StepFunctionsFake):
    """The fake, with a history of every task: when it was leased, when each heartbeat was accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.histories: dict[str, list[float]] = {}

    async def start(self) -> NotingFake:
        """Listen, and record from now on."""
        await super().start()
        accept, begin = self._tasks.heartbeat, self._tasks._start

        def heartbeat(token: str) -> None:
            accept(token)
            self.histories[token].append(self._clock.now())

        def start(task: FakeTask, worker_name: str) -> None:
            begin(task, worker_name)
            self.histories[task.token] = [self._clock.now()]

        self._tasks.heartbeat, self._tasks._start = heartbeat, start  # type: ignore[method-assign]
        return self

    def noted(self) -> str:
        """Return the record as JSON."""
        counts = {"timed_out": self.counts.get("timed_out", 0), "ended_at": self._clock.now()}
        return json.dumps(counts | {"histories": list(self.histories.values())})


async def _serve() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with NotingFake() as fake:
        print(f"Step Functions fake listening on {fake.url}", flush=True)
        await stop.wait()
        print(fake.noted(), flush=True)


if __name__ == "__main__":
    uvloop.run(_serve())
