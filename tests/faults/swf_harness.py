"""What a run with Amazon SWF needs: the service's fake in place of Step Functions', and a decider that never dies."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from activity_worker.testing import FakeActivityTask, FakeTimeouts, SwfFake, SwfFakeSettings
from tests.faults.fault_cluster import FaultCluster
from tests.faults.harness import HOLD_SECONDS, PAYLOAD, FaultHarness

DOMAIN, TASK_LIST = "shop", "resize"
#: How often the decider schedules an activity again after a time-out.
TIMES = 6


@dataclass(frozen=True, slots=True)
class SwfAttempt:
    """One activity task, in the words of the judges."""

    token: str
    state: str
    error: str
    conclusions: int
    heartbeats: int


class SwfFaultHarness(FaultHarness):
    """A pool on a task list. An execution is one activity; its decider schedules it again after a time-out."""

    activities: Sequence[str] = ()

    def __init__(self, cluster: FaultCluster, number: str, folder: Path) -> None:
        super().__init__(cluster, number, folder)
        self.swf = SwfFake(settings=SwfFakeSettings(poll_hold_seconds=HOLD_SECONDS), domains=[DOMAIN])
        self._last: dict[str, FakeActivityTask] = {}
        self._deciding: asyncio.Task[None] | None = None

    @property
    def task_service(self) -> SwfFake:
        """The service that the operator and the workers call."""
        return self.swf

    async def create_pool(self, **spec: Any) -> None:
        """Make the pool, which polls at zero unless the spec says otherwise."""
        polls = spec.pop("pollAtZero", True)
        source = {"swf": {"domain": DOMAIN, "taskList": TASK_LIST, "pollAtZero": polls}}
        await super().create_pool(source=source, aws={"region": "us-east-1"}, activityArn=None, **spec)

    def execute(self, count: int = 1, **task: Any) -> None:
        """Start executions of one activity each."""
        if self._deciding is None:
            self._deciding = asyncio.create_task(self._decide())
        for _ in range(count):
            name = f"e{len(self.executions) + 1}"
            self.executions[name] = json.dumps({"number": name, "secret": PAYLOAD, **task})
            self._schedule(name)

    def outcomes(self) -> dict[str, str]:
        """Return how the last attempt at each execution's activity ended, RUNNING while it has not."""
        words = {"scheduled": "RUNNING", "started": "RUNNING", "completed": "SUCCEEDED"}
        found = {name: words.get(task.state, task.state.upper()) for name, task in self._last.items()}
        tries = {name: len(self._last[name].workflow.tasks) for name in found}
        again = {name for name, how in found.items() if how == "TIMED_OUT" and tries[name] < TIMES}
        return {
            name: "RUNNING" if name in again else ": ".join(filter(None, (how, self._last[name].reason)))
            for name, how in found.items()
        }

    def open_polls(self) -> int:
        """Return how many polls wait at the service, the workers' polls included."""
        return self.swf.open_polls(DOMAIN, TASK_LIST)

    def tasks(self) -> Sequence[SwfAttempt]:
        """Return every activity task so far."""
        return [
            SwfAttempt(task.token, task.state, task.timeout_type, task.conclusions, task.heartbeats)
            for task in self.swf.tasks
        ]

    async def close(self) -> None:
        """End the decider."""
        if self._deciding is not None:
            self._deciding.cancel()
            await asyncio.gather(self._deciding, return_exceptions=True)

    def misclosed(self) -> list[str]:
        """Return each activity task that its workflow's history does not close exactly once."""
        return misclosed(self.swf.tasks)

    def _schedule(self, name: str) -> None:
        before = self._last.get(name)
        (self._last[name],) = self.swf.schedule(
            DOMAIN,
            TASK_LIST,
            self.executions[name],
            timeouts=FakeTimeouts(heartbeat_seconds=self.task_seconds),
            workflow=None if before is None else before.workflow,
        )

    def _late(self) -> list[str]:
        return [
            name for name, task in self._last.items() if task.state == "timed_out" and len(task.workflow.tasks) < TIMES
        ]

    async def _decide(self) -> None:
        while True:
            await self.swf.until(lambda: bool(self._late()))
            for name in self._late():
                self._schedule(name)


def misclosed(tasks: Iterable[FakeActivityTask]) -> list[str]:
    """Return each activity task that its history does not close once, or closes while it is open."""
    return [
        f"the history closes {task.activity_id} by {events}"
        for task in tasks
        if len(events := task.closing_events()) != (0 if task.state in {"scheduled", "started"} else 1)
    ]
