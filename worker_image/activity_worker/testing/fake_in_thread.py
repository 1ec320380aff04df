"""The Step Functions fake for tests without an event loop: it runs in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from activity_worker.testing.fake_faults import Fault
from activity_worker.testing.fake_operations import FakeSettings
from activity_worker.testing.fake_server import StepFunctionsFake
from activity_worker.testing.fake_tasks import FakeTask

T = TypeVar("T")

#: For a call of the fake that takes microseconds.
_CALL_SECONDS = 30.0


class FakeInThread:
    """A `StepFunctionsFake` that listens inside the `with` block. Every method may be called from any thread.

    Its polls are held for two seconds instead of a minute, so that a worker on it stops soon.
    """

    def __init__(self, settings: FakeSettings | None = None) -> None:
        self._fake = StepFunctionsFake(settings=settings or FakeSettings(poll_hold_seconds=2.0))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="step-functions-fake", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._fake.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._fake.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """The endpoint: `--endpoint-url` of a worker, `endpoint_url` of boto3."""
        return self._fake.url

    def create_activity(self, name: str) -> str:
        """Make an activity and return its ARN."""
        return self._call(lambda: self._fake.create_activity(name))

    def schedule(
        self, activity_arn: str, task_input: str = "{}", *, heartbeat_seconds: float | None = None
    ) -> FakeTask:
        """Add a task with no execution around it and return it, making the activity if need be."""
        (task,) = self._call(lambda: self._fake.schedule(activity_arn, task_input, heartbeat_seconds=heartbeat_seconds))
        return task

    def wait_ended(self, task: FakeTask, timeout_seconds: float = 60.0) -> FakeTask:
        """Wait until the task has ended and return it. Raises TimeoutError."""
        self._wait(self._fake.until(lambda: task.ended_at is not None), timeout_seconds)
        return task

    def inject(self, operation: str, fault: Fault, times: int | None = 1) -> None:
        """Apply a fault to the next `times` calls of an operation (`*`: any; None: always)."""
        self._call(lambda: self._fake.inject(operation, fault, times))

    def open_polls(self, activity_arn: str) -> int:
        """Return how many polls wait for a task of this activity."""
        return self._call(lambda: self._fake.open_polls(activity_arn))

    @property
    def tasks(self) -> list[FakeTask]:
        """Every task ever scheduled, oldest first."""
        return self._call(lambda: self._fake.tasks)

    @property
    def counts(self) -> dict[str, int]:
        """Totals since the start, by the names that `StepFunctionsFake.counts` lists."""
        return self._call(lambda: self._fake.counts)

    def _call(self, ask: Callable[[], T]) -> T:
        async def answer() -> T:
            return ask()

        return self._wait(answer())

    def _wait(self, coroutine: Coroutine[Any, Any, T], timeout_seconds: float = _CALL_SECONDS) -> T:
        waiting = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return waiting.result(timeout_seconds)
        except TimeoutError:
            waiting.cancel()
            raise
