"""Helpers of the runtime's tests: a worker over a source in memory, with recorded events."""

from collections.abc import Callable
from typing import Any

from activity_worker.activity import TaskRequest
from activity_worker.contract import EventName, ExitOutput
from activity_worker.events import EventEmitter
from activity_worker.runtime.options import Polling, TaskOptions
from activity_worker.runtime.slot import Slot
from activity_worker.sources.memory import MemorySource

POLL = ["polling:starting", "polling:success"]


class Recorder:
    """Records every event in order, with its payload."""

    def __init__(self) -> None:
        self.emitter = EventEmitter()
        self.events: list[tuple[str, tuple[Any, ...]]] = []
        for name in EventName:
            self.emitter.on(name.value, lambda *payload, name=name: self.events.append((name.value, payload)))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def tasks(self) -> list[str]:
        return [name for name in self.names if name.startswith("task:")]

    def payload(self, name: str) -> tuple[Any, ...]:
        """Return the payload of the last event of this name."""
        return [payload for event, payload in self.events if event == name][-1]

    def count(self, name: str) -> int:
        return self.names.count(name)


class RecordedWorker:
    """One worker, its source, and its recorded events."""

    def __init__(
        self,
        handler: Callable[..., Any],
        *,
        polling: Polling | None = None,
        hold_seconds: float = 60.0,
        **options: Any,
    ) -> None:
        self.source = MemorySource("arn:activity", hold_seconds=hold_seconds)
        self.recorder = Recorder()
        self.worker = Slot(
            self.source,
            handler,
            worker_name="w",
            events=self.recorder.emitter,
            polling=polling,
            options=TaskOptions(**options),
        )

    async def one(self, text: str = '{"n": 1}') -> str:
        """Run one task by `run_once`; return its token."""
        token = self.source.put(text)
        assert await self.worker.run_once()
        return token

    async def stopped(self) -> ExitOutput:
        return await self.worker.wait_stopped()


async def double(request: TaskRequest) -> Any:
    return request.input["n"] * 2
