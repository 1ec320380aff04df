"""A fake of an AWS service over HTTP: operations by the header X-Amz-Target, faults on demand, and its own pages.

A poll whose caller has hung up stays open until its hold ends and can still be given a task, which is then lost until
its time-out: that is what the service can do, and why no poll may be aborted. `counts["handed_to_nobody"]` says how
often.
"""

import asyncio
import json
import ssl
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import formatdate
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self, cast

from aiohttp import web

from activity_worker.testing import fake_admin
from activity_worker.testing.fake_clock import Clock, LoopClock
from activity_worker.testing.fake_faults import FakeFaults, Fault, Refusal
from activity_worker.testing.fake_tasks import FakeServiceError

Parameters = dict[str, Any]
Answer = dict[str, Any] | Awaitable[dict[str, Any]]

_CONTENT_TYPE = "application/x-amz-json-1.0"
_SKEW_SECONDS = 300.0


class HttpSettings(Protocol):
    """What every fake's settings have."""

    #: The service's clock minus ours; when it is not 0, requests more than 5 minutes off are refused.
    clock_offset_seconds: float


class HttpFake(ABC):
    """A service that listens from `start` (or `async with`) to `close`.

    `host` and `port` say where (0: a free port), `clock` whose time it lives by, `tls` makes it HTTPS. All methods
    belong to the loop it was started on.
    """

    #: The target prefix of the service's operations, with its dot.
    prefix: ClassVar[str]
    #: How the service refuses a call that policies do not allow.
    denied: ClassVar[Refusal]

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._clock = clock or LoopClock()
        self._watchers: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._revoked: set[str] = set()
        self._runner: web.ServerRunner | None = None

    @property
    @abstractmethod
    def http_settings(self) -> HttpSettings:
        """The settings that this class reads."""

    @abstractmethod
    def set_up(self) -> "Counter[str]":
        """Make the service's state, with nothing in it, and return its counter of totals. Called by `start`."""

    @abstractmethod
    def answer(self, operation: str, parameters: Parameters) -> Answer:
        """Return an operation's output, or an awaitable of it. Raises FakeServiceError."""

    @abstractmethod
    def release_polls(self) -> None:
        """End every open poll empty."""

    @abstractmethod
    def state(self, *, with_tasks: bool = True) -> dict[str, Any]:
        """Return what became of everything, as JSON."""

    @abstractmethod
    def schedule_from(self, order: dict[str, Any]) -> int:
        """Add tasks by an order in JSON, and return how many. Raises KeyError, TypeError, ValueError."""

    def answer_page(self, page: str, order: dict[str, Any]) -> dict[str, Any] | None:
        """Do what is posted to a page that only this fake has; None for a page that it does not have."""
        del page, order
        return None

    async def start(self) -> Self:
        """Listen; return self. Raises OSError if the port is taken."""
        self._counts = self.set_up()
        self.faults = FakeFaults(self._clock.now, denied=self.denied)
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
            self.release_polls()
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

    def inject(self, operation: str, fault: Fault, times: int | None = 1) -> None:
        """Apply a fault to the next `times` calls of an operation (`*`: any; None: until `clear_faults`)."""
        self.faults.inject(operation, fault, times)

    def revoke_key(self, access_key_id: str) -> None:
        """Refuse every call that is signed with this access key from now on, as the service does after a rotation.

        `faults.seen` counts the refused calls as `operation:revoked-key`.
        """
        self._revoked.add(access_key_id)

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

    def _changed(self) -> None:
        for happened, future in self._watchers:
            if not future.done() and happened():
                future.set_result(None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith("/_fake/"):
            return await fake_admin.handle(self, request)
        operation = request.headers.get("X-Amz-Target", "").removeprefix(self.prefix)
        self._counts[f"call:{operation}"] += 1
        try:
            fault = self.faults.next_fault(operation) if self.faults.active else None
            if fault is Fault.HANG:
                await self._released.wait()
                return _vanish(request)
            if self._revoked:
                self._check_key(request, operation)
            if self.http_settings.clock_offset_seconds:
                self._check_date(request, operation)
            output = self.answer(operation, _parameters(await request.read()))
            if not isinstance(output, dict):
                output = await output
        except FakeServiceError as error:
            return self._reply({"__type": error.code, "message": error.message}, error.status)
        if output.get("taskToken") and (request.transport is None or request.transport.is_closing()):
            self._counts["handed_to_nobody"] += 1
            self._changed()
        if fault is Fault.DROP_REPLY:
            return _vanish(request)
        return self._reply(output, 200)

    def _reply(self, output: dict[str, Any], status: int) -> web.Response:
        body = json.dumps(output).encode() if output else b"{}"
        response = web.Response(body=body, status=status, content_type=_CONTENT_TYPE)
        if self.http_settings.clock_offset_seconds:
            response.headers["Date"] = formatdate(self._service_time(), usegmt=True)
        return response

    def _service_time(self) -> float:
        return time.time() + self.http_settings.clock_offset_seconds

    def _check_key(self, request: web.BaseRequest, operation: str) -> None:
        _, _, scope = request.headers.get("Authorization", "").partition("Credential=")
        if scope.partition("/")[0] in self._revoked:
            self.faults.seen[f"{operation}:revoked-key"] += 1
            message = "The security token included in the request is invalid"
            raise FakeServiceError("UnrecognizedClientException", message)

    def _check_date(self, request: web.BaseRequest, operation: str) -> None:
        said = datetime.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        if abs(said - self._service_time()) > _SKEW_SECONDS:
            self.faults.seen[f"{operation}:wrong-clock"] += 1
            raise FakeServiceError("InvalidSignatureException", "Signature expired or not yet current")


def _parameters(body: bytes) -> Parameters:
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise FakeServiceError("SerializationException", "the body is not a JSON object")
    return cast("Parameters", said)


def _vanish(request: web.BaseRequest) -> web.Response:
    """Break the connection; what is returned is never seen."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
