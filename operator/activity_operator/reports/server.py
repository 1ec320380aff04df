"""The report server: HTTPS with one path. Every resource has a limit, because any pod in the cluster can connect."""

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from aiohttp import web

from activity_operator.backlog.protocol import Key
from activity_operator.reports.authentication import RefusedError, ReporterIdentity, ReviewUnavailableError
from activity_operator.reports.rate_limit import ByteLimit
from activity_operator.reports.worker_registry import MAX_WORKERS, RegistryFullError
from activity_worker.contract import MAX_REPORT_BYTES, REPORT_PATH, ContractError, Reply, Report
from activity_worker.wire.connection_limit import ConnectionLimiter, LimitedConnection, is_connection_error

log = logging.getLogger(__name__)

#: Seconds for which the server reads and drops the rest of a refused request's body.
LINGER_SECONDS = 2.0
#: Seconds before the refusal of a pod that is above its rate limit, on each of its connections.
OVERDRAWN_SECONDS = 1.0
#: Bytes of a connection that are buffered before they are read: in HTTP and in TLS, and in the kernel. With the default
#: buffers, 400 connections would take 200 MB of the operator's 512 MB.
READ_BYTES = 16_384
KERNEL_BYTES = 32_768
#: Most connections by default: one of each worker that the operator remembers, and a tenth more for workers that
#: connect again before their old connection ends.
MAX_CONNECTIONS = MAX_WORKERS + MAX_WORKERS // 10
NOT_HTTP = "the request is not HTTP/1.1 that is understood here"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one connection, of one source address and of all connections together.

    `request_seconds` applies to a request's head and to its body, each; `idle_seconds` to the pause between two
    requests (the longest report interval is well below it). `connections_per_source` is high, because in some networks
    all pods of a node share one address.
    """

    body_bytes: int = MAX_REPORT_BYTES
    handshake_seconds: float = 10.0
    request_seconds: float = 10.0
    idle_seconds: float = 150.0
    connections: int = MAX_CONNECTIONS
    connections_per_source: int = 512


class TokenAuthenticator(Protocol):
    """Identifies the pod of an `Authorization` header."""

    async def identify(self, authorization: str) -> ReporterIdentity:
        """Return the pod; raises `RefusedError`, `ReviewUnavailableError`."""
        ...


class ReportHandlerLike(Protocol):
    """Answers the report of an authenticated worker."""

    async def answer(self, report: Report) -> Reply:
        """Return the reply; raises `RegistryFullError`."""
        ...


class _RefusalError(Exception):
    """A request that is refused: the HTTP status, a short reason, and whether the connection is closed."""

    def __init__(self, status: int, reason: str, *, close: bool = False, retry_after: int = 0) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.close = close
        self.retry_after = retry_after


class ReportServer:
    """The HTTPS server for reports.

    `leading()` returns whether this process leads and may answer. `member(pod_uid)` returns the pool of a worker's pod,
    None if the pod is not known (yet). `observed(status)` is called with the HTTP status of every answer.
    """

    def __init__(
        self,
        authenticator: TokenAuthenticator,
        handler: ReportHandlerLike,
        *,
        leading: Callable[[], bool],
        member: Callable[[str], Key | None],
        observed: Callable[[int], None] = lambda _status: None,
        limits: Limits | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._handler = handler
        self._leading = leading
        self._pool_of = member
        self._observed = observed
        self._limits = limits or Limits()
        self._bytes = ByteLimit()
        self._connections: _ReportConnections | None = None
        self._listener: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port on which the server listens; raises RuntimeError before `start`."""
        if self._listener is None:
            raise RuntimeError("the report server does not listen: call start() first")
        return int(self._listener.sockets[0].getsockname()[1])

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Start to listen; port 0 chooses a free port. Raises OSError."""
        self._connections = _ReportConnections(self._handle, self._limits, self._observed)
        self._listener = await asyncio.get_running_loop().create_server(
            self._connections,
            host,
            port,
            ssl=context,
            ssl_handshake_timeout=self._limits.handshake_seconds,
            ssl_shutdown_timeout=2.0,
            backlog=1024,
        )
        for each in self._listener.sockets:
            # Every connection inherits this size. TLS keeps a buffer of the size of the largest piece it has read.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)

    async def stop(self, timeout_seconds: float = 5.0) -> None:
        """Stop listening. Requests in progress get their answer within `timeout_seconds`."""
        if self._listener is not None:
            self._listener.close()
        if self._connections is not None:
            self._connections.pre_shutdown()
            await self._connections.shutdown(timeout_seconds)
        self._listener = self._connections = None

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        try:
            reply = await self._reply_to(request)
            response = _json(200, reply.to_wire())
        except _RefusalError as refusal:
            response = _json(refusal.status, {"error": refusal.reason})
            if refusal.retry_after:
                response.headers["Retry-After"] = str(refusal.retry_after)
            if refusal.close:
                response.force_close()
        except Exception:
            log.exception("a report could not be answered")
            response = _json(500, {"error": "the operator failed to answer; see its log"})
        self._observed(response.status)
        return response

    async def _reply_to(self, request: web.BaseRequest) -> Reply:
        self._check_head(request)
        identity = await self._identify(request)
        await self._check_rate(identity, request.content_length)
        report = await self._read(request)
        self._check_membership(identity, report)
        try:
            reply = await self._handler.answer(report)
        except RegistryFullError as error:
            raise _RefusalError(429, str(error), retry_after=30) from error
        if not self._leading():
            raise _RefusalError(421, "another replica leads", close=True)
        return reply

    def _check_head(self, request: web.BaseRequest) -> None:
        if request.path != REPORT_PATH:
            raise _RefusalError(404, f"reports go to {REPORT_PATH}", close=True)
        if request.method != "POST":
            raise _RefusalError(405, "reports are sent by POST", close=True)
        if not self._leading():
            raise _RefusalError(421, "another replica leads", close=True)
        if (request.content_length or 0) > self._limits.body_bytes:
            raise self._too_large()

    def _too_large(self) -> _RefusalError:
        return _RefusalError(413, f"a report has at most {self._limits.body_bytes} bytes", close=True)

    async def _identify(self, request: web.BaseRequest) -> ReporterIdentity:
        try:
            return await self._authenticator.identify(request.headers.get("Authorization", ""))
        except RefusedError as error:
            raise _RefusalError(401, str(error), close=True) from error
        except ReviewUnavailableError as error:
            raise _RefusalError(503, str(error), retry_after=1) from error

    async def _check_rate(self, identity: ReporterIdentity, length: int | None) -> None:
        """Refuse a report above the pod's rate limit, after a pause: a client refused at once would retry at once."""
        size = self._limits.body_bytes if length is None else length
        if not self._bytes.take(identity.pod_uid, size, asyncio.get_running_loop().time()):
            await asyncio.sleep(OVERDRAWN_SECONDS)
            raise _RefusalError(429, "this pod sends more than the operator reads of one pod", retry_after=1)

    async def _read(self, request: web.BaseRequest) -> Report:
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                body = await self._body(request)
        except TimeoutError:
            raise _RefusalError(408, "the report did not arrive in time", close=True) from None
        except Exception as error:
            if not is_connection_error(error):
                raise
            log.debug("a report broke off: %s", type(error).__name__)
            raise _RefusalError(400, "the report did not arrive whole", close=True) from None
        try:
            return Report.from_wire(json.loads(body))
        except ContractError as error:
            raise _RefusalError(400, str(error)) from error
        except (ValueError, RecursionError):
            raise _RefusalError(400, "the body: expected JSON") from None

    async def _body(self, request: web.BaseRequest) -> bytearray:
        body = bytearray()
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > self._limits.body_bytes:
                raise self._too_large()
        return body

    def _check_membership(self, identity: ReporterIdentity, report: Report) -> None:
        if not report.pod_uid or report.pod_uid != identity.pod_uid:
            raise _RefusalError(403, "podUid: the token is bound to another pod")
        if report.pod_name != identity.pod_name:
            # The pool's status shows this name to people, so it must be the right one.
            raise _RefusalError(403, "podName: the token is bound to another pod")
        if not report.incarnation:
            raise _RefusalError(400, "incarnation: expected a name that is new at every start of the container")
        pool = self._pool_of(report.pod_uid)
        if pool is None:
            # The watch of pods may lag behind a worker that has just started.
            raise _RefusalError(503, "podUid: this pod is not known as a worker of any pool (yet)", retry_after=1)
        if pool != (report.namespace, report.pool):
            raise _RefusalError(403, "namespace, pool: this pod is a worker of another pool")


class _ReportConnections(ConnectionLimiter):
    """Limits the connections of each source address and in all; calls `observed(400)` for input that is not HTTP."""

    def __init__(self, handler: Any, limits: Limits, observed: Callable[[int], None]) -> None:
        super().__init__(handler)
        self.limits = limits
        self._observed = observed

    def __call__(self) -> "_ReportConnection":
        return _ReportConnection(
            self,
            keepalive_timeout=self.limits.idle_seconds,
            # If the server answers before it has read the body, a reset of the connection would lose the answer.
            lingering_time=LINGER_SECONDS,
            # Unread bytes take memory while the token is checked or the rate limit pauses the request.
            read_bufsize=READ_BYTES,
            max_field_size=24_576,
            max_headers=64,
        )

    def may_connect(self, newcomer: LimitedConnection) -> bool:
        """Whether there is room for another connection from this source address."""
        return (
            self.sources[newcomer.source] < self.limits.connections_per_source
            and len(self.present) < self.limits.connections
        )

    def refusal(self) -> web.Response:
        """Return the answer to a request that is not HTTP."""
        self._observed(400)
        return _json(400, {"error": NOT_HTTP})


class _ReportConnection(LimitedConnection):
    """One connection, closed if its first request does not arrive in time."""

    __slots__ = ("_first_request", "_seconds")

    def __init__(self, door: _ReportConnections, **options: Any) -> None:
        super().__init__(door, **options)
        self._seconds = door.limits.request_seconds
        self._first_request: asyncio.TimerHandle | None = None

    def on_connected(self, transport: asyncio.Transport) -> None:
        """Limit the read buffer, and start the timer for the first request."""
        cast("Any", transport).set_read_buffer_limits(high=READ_BYTES)
        self._first_request = asyncio.get_running_loop().call_later(self._seconds, self._end_if_silent)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timer for the first request."""
        if self._first_request is not None:
            self._first_request.cancel()
        super().connection_lost(exc)

    def _end_if_silent(self) -> None:
        if not self.asked:
            self.force_close()


def _json(status: int, body: Any) -> web.Response:
    return web.Response(
        status=status,
        body=json.dumps(body, separators=(",", ":")).encode(),
        content_type="application/json",
        headers={"Server": "activitypool"},
    )
