"""Run a handler with no worker and no service, and look at what it did."""

import asyncio
import json
from typing import Any

from activity_worker.contract import EventName
from activity_worker.events import EventEmitter, ReceivedTask
from activity_worker.handlers.registry import Activities
from activity_worker.handlers.signature import Handler
from activity_worker.runtime.cancellation import CancelReason
from activity_worker.runtime.options import TaskOptions
from activity_worker.runtime.slot import Slot
from activity_worker.sources.memory import MemorySource
from activity_worker.task import TaskResponse


class ActivityEnvironment:
    """Runs one handler call after another as a worker would, against memory.

        environment = ActivityEnvironment()
        assert await environment.run(handler, {"text": "abc"}) == {"size": 3}

    `progress` lists the details of the handler's heartbeats, `events` the names of the events of the last run,
    `response` is the answer that the service would have got, and `cancelled` the reason with which the handler was
    cancelled, None if it was not.
    """

    def __init__(self, options: TaskOptions | None = None) -> None:
        self.events: list[str] = []
        self.progress: list[Any] = []
        self.response: TaskResponse | None = None
        self.cancelled: CancelReason | None = None
        self._options = options or TaskOptions()
        self._worker: Slot | None = None
        self._seen = 0
        self._cancel_after: float | None = None
        self._cancel_at: int | None = None

    async def run(self, handler: Activities | Handler, value: Any = None) -> Any:
        """Run `handler` with `value` as its input; returns its output, or raises what went wrong in it.

        A failure that the handler itself reported is in `response`; None is returned then.
        """
        self.events, self.progress, self.response, self._seen, self.cancelled = [], [], None, 0, None
        source, emitter = MemorySource("arn:aws:states:us-east-1:123456789012:activity:environment"), EventEmitter()
        errors: list[BaseException] = []
        for name in EventName:
            emitter.on(name.value, lambda *payload, name=name: self._note(name, payload, errors))
        worker = self._worker = Slot(source, handler, events=emitter, options=self._options)
        source.put(json.dumps(value))
        after, self._cancel_after = self._cancel_after, None
        timer = None if after is None else asyncio.get_running_loop().call_later(after, self._cancel_if_running)
        try:
            await worker.run_once()
        finally:
            self._worker = self._cancel_at = None
            if timer is not None:
                timer.cancel()
        if errors:
            raise errors[0]
        answered = self.response
        return None if answered is None else answered.output

    def run_sync(self, handler: Activities | Handler, value: Any = None) -> Any:
        """Run `handler` like `run`, from a test that is a plain function. Raises RuntimeError in an event loop."""
        return asyncio.run(self.run(handler, value))

    def cancel(self, reason: CancelReason = CancelReason.WORKER_STOPPED, detail: str = "the test cancelled it") -> None:
        """Cancel the handler that runs, from another coroutine. Raises RuntimeError if none runs.

        `cancel_soon` and `cancel_at_heartbeat`, called before `run`, need no other coroutine.
        """
        if self._worker is None:
            raise RuntimeError("cancel: no handler runs; call cancel_soon or cancel_at_heartbeat before run")
        self.cancelled = reason
        self._worker.cancel_task(reason, detail)

    def cancel_soon(self, after_seconds: float = 0.0) -> None:
        """Cancel the handler of the next `run` after so long."""
        self._cancel_after = after_seconds

    def cancel_at_heartbeat(self, number: int = 1) -> None:
        """Cancel the handler of the next `run` when its heartbeat of this number, from 1, has details."""
        self._cancel_at = number

    def _cancel_if_running(self) -> None:
        if self._worker is not None:
            self.cancel()

    def _note(self, name: EventName, payload: tuple[Any, ...], errors: list[BaseException]) -> None:
        self.events.append(name.value)
        self._note_progress()
        if name is EventName.TASK_HEARTBEAT and len(self.progress) == self._cancel_at and self.cancelled is None:
            self.cancel()
        if name is EventName.TASK_ERRORED:
            received, error = payload
            assert isinstance(received, ReceivedTask)  # noqa: S101 - the event's payload
            errors.append(error)
        elif name is EventName.TASK_DONE:
            self.response = payload[1]

    def _note_progress(self) -> None:
        """Note the handler's last details at every event: its last heartbeat may wait behind the task's end."""
        run = None if self._worker is None else self._worker.current
        progress = None if run is None else run.respond.progress
        if progress is not None and progress.count > self._seen:
            self._seen = progress.count
            self.progress.append(progress.details)
