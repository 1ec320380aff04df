"""A Step Functions fake over HTTP that ships with the product.

It does what running activities needs and public emulators do not: `TaskTimedOut` for spent tokens, heartbeat and task
time-outs, the limit of open polls, throttling, wake on arrival, a settable poll hold, faults on demand, and a record of
what became of every task. In a test: `async with StepFunctionsFake() as fake:` and `fake.url`. As a process:
`python -m activity_worker.testing.stepfunctions --port 4566`, inspected at `/_fake/state` (see `fake_admin`).

A poll whose caller has hung up stays open until its hold ends and can still be given a task, which is then lost until
its time-out: that is what the service can do, and why no poll may be aborted. `counts["handed_to_nobody"]` says how
often.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import formatdate
from types import TracebackType
from typing import Any, Self, cast

from aiohttp import web

from activity_worker.testing import fake_admin
from activity_worker.testing.fake_clock import Clock, LoopClock
from activity_worker.testing.fake_executions import FakeExecutions
from activity_worker.testing.fake_faults import FakeFaults, Fault
from activity_worker.testing.fake_operations import FakeOperations, FakeSettings
from activity_worker.testing.fake_tasks import FakeServiceError, FakeTask, FakeTasks

_CONTENT_TYPE = "application/x-amz-json-1.0"
_PREFIX = "AWSStepFunctions."
_SKEW_SECONDS = 300.0


class StepFunctionsFake:
    """The service, listening from `start` (or `async with`) to `close`.

    `host` and `port` say where (0: a free port), `clock` whose time it lives by, `tls` makes it HTTPS. `settings` may
    be changed while it runs. All methods belong to the loop it was started on.
    """

    def __init__(
        self,
        *,
        settings: FakeSettings | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.settings = settings or FakeSettings()
        self._host, self._port, self._tls = host, port, tls
        self._clock = clock or LoopClock()
        self._watchers: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._runner: web.ServerRunner | None = None

    async def start(self) -> Self:
        """Listen; return self. Raises OSError if the port is taken."""
        self._tasks = FakeTasks(self._clock, self._changed)
        self._executions = FakeExecutions(self._tasks, self._clock)
        self._operations = FakeOperations(self.settings, self._tasks, self._executions, self._clock)
        self.faults = FakeFaults(self._clock.now)
        self._released = asyncio.Event()
        self._runner = web.ServerRunner(
            web.Server(self._handle, access_log=None), handle_signals=False, shutdown_timeout=1.0
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls).start()
        self._port = int(self._runner.addresses[0][1])
        return self

    async def close(self) -> None:
        """End open polls empty, and stop listening."""
        if self._runner is not None:
            self._released.set()
            self._tasks.release_polls()
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """Return the endpoint URL."""
        return f"{'https' if self._tls else 'http'}://{self._host}:{self._port}"

    @property
    def counts(self) -> dict[str, int]:
        """Return totals since the start.

        Of tasks: scheduled, started, succeeded, failed, timed_out, aborted. Of calls: heartbeats, empty_polls, refused
        (a spent token), handed_to_nobody, and each operation as `call:GetActivityTask`.
        """
        return dict(self._tasks.counts)

    @property
    def tasks(self) -> list[FakeTask]:
        """Return every task ever scheduled, oldest first."""
        return list(self._tasks.tasks.values())

    def create_activity(self, name: str) -> str:
        """Make an activity and return its ARN."""
        return self._tasks.create_activity(self._operations.arn("activity", name)).arn

    def open_polls(self, activity_arn: str) -> int:
        """Return how many polls wait for a task of this activity."""
        return len(self._tasks.activity(activity_arn).polls)

    def queued(self, activity_arn: str) -> int:
        """Return how many tasks wait for a poll: the backlog that the real service does not tell."""
        return len(self._tasks.activity(activity_arn).queue)

    def schedule(
        self,
        activity_arn: str,
        task_input: str = "{}",
        *,
        count: int = 1,
        heartbeat_seconds: float | None = None,
        timeout_seconds: float | None = None,
    ) -> list[FakeTask]:
        """Add tasks with no execution around them, making the activity if need be."""
        activity = self._tasks.create_activity(activity_arn)
        return [
            self._tasks.schedule(
                activity, task_input, heartbeat_seconds=heartbeat_seconds, timeout_seconds=timeout_seconds
            )
            for _ in range(count)
        ]

    def inject(self, operation: str, fault: Fault, times: int | None = 1) -> None:
        """Apply a fault to the next `times` calls of an operation (`*`: any; None: until `clear_faults`)."""
        self.faults.inject(operation, fault, times)

    def clear_faults(self) -> None:
        """End all faults and rate limits, and let go of calls that hang."""
        self.faults.clear()
        self._released.set()
        self._released = asyncio.Event()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until a condition on this fake holds; it is looked at after every change."""
        if not happened():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append((happened, future))
            try:
                await future
            finally:
                self._watchers = [watcher for watcher in self._watchers if watcher[1] is not future]

    def state(self, *, with_tasks: bool = True) -> dict[str, Any]:
        """Return the oracle as JSON: activities, totals, faults that struck, executions by status, every task."""
        statuses = [execution.status for execution in self._executions.executions.values()]
        activities = {
            arn: {"queued": len(activity.queue), "open_polls": len(activity.polls)}
            for arn, activity in self._tasks.activities.items()
        }
        state: dict[str, Any] = {
            "now": self._clock.now(),
            "activities": activities,
            "counts": self.counts,
            "faults": dict(self.faults.seen),
            "executions": {status: statuses.count(status) for status in sorted(set(statuses))},
        }
        return state | ({"tasks": [task.view() for task in self._tasks.tasks.values()]} if with_tasks else {})

    def _changed(self) -> None:
        for happened, future in self._watchers:
            if not future.done() and happened():
                future.set_result(None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith("/_fake/"):
            return await fake_admin.handle(self, request)
        operation = request.headers.get("X-Amz-Target", "").removeprefix(_PREFIX)
        counts = self._tasks.counts
        counts[f"call:{operation}"] += 1
        try:
            fault = self.faults.next_fault(operation) if self.faults.active else None
            if fault is Fault.HANG:
                await self._released.wait()
                return _vanish(request)
            if self.settings.clock_offset_seconds:
                self._check_date(request)
            output = self._operations.answer(operation, _parameters(await request.read()))
            if not isinstance(output, dict):
                output = await output
        except FakeServiceError as error:
            return self._reply({"__type": error.code, "message": error.message}, error.status)
        if "taskToken" in output and (request.transport is None or request.transport.is_closing()):
            counts["handed_to_nobody"] += 1
            self._changed()
        if fault is Fault.DROP_REPLY:
            return _vanish(request)
        return self._reply(output, 200)

    def _reply(self, output: dict[str, Any], status: int) -> web.Response:
        body = json.dumps(output).encode() if output else b"{}"
        response = web.Response(body=body, status=status, content_type=_CONTENT_TYPE)
        if self.settings.clock_offset_seconds:
            response.headers["Date"] = formatdate(self._service_time(), usegmt=True)
        return response

    def _service_time(self) -> float:
        return time.time() + self.settings.clock_offset_seconds

    def _check_date(self, request: web.BaseRequest) -> None:
        said = datetime.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        if abs(said - self._service_time()) > _SKEW_SECONDS:
            raise FakeServiceError("InvalidSignatureException", "Signature expired or not yet current")


def _parameters(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise FakeServiceError("SerializationException", "the body is not a JSON object")
    return cast("dict[str, Any]", said)


def _vanish(request: web.BaseRequest) -> web.Response:
    """Break the connection; what is returned is never seen."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
