"""Serves a few short pages over plain HTTP without authentication, with limits for each client.

A connection carries one request and ends after the answer, as the kubelet's connections do. If there are too many
connections, the oldest one without a request is ended, of the source address that has the most.

The server is this package's own: the import of aiohttp's takes as long as the rest of a worker's start (decision 9).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import cast

from activity_worker.wire.open_connections import OpenConnections
from activity_worker.wire.plain_request import MalformedRequestError, PlainRequest, PlainResponse, parse_request

log = logging.getLogger(__name__)

#: Makes a page, once for each request.
Page = Callable[[], PlainResponse | Awaitable[PlainResponse]]

_NOT_HTTP = PlainResponse.text("the request is not HTTP/1.1 that is understood here\n", 400)


@dataclass(frozen=True, slots=True)
class PlainLimits:
    """The limits of all connections together, and of one connection.

    `connections` is some ten times what kubelet, a few scrapers and a person with a browser have at once.
    `request_bytes` is all that a connection may bring; kubelet brings 150 bytes, Prometheus 400. `head_seconds` is for
    the request to arrive, `life_seconds` for everything, the way of the answer included: three times what Prometheus
    waits for by default.
    """

    connections: int = 64
    request_bytes: int = 16_384
    head_seconds: float = 5.0
    life_seconds: float = 30.0


#: Addresses of callers in the same pod: `kubectl exec` and `kubectl port-forward`. Service meshes use others of 127/8.
_LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})


class PlainServer:
    """Serves `pages` by their paths, to GET and HEAD; those in `local` to callers on the loopback address only."""

    def __init__(
        self, pages: Mapping[str, Page], limits: PlainLimits | None = None, *, local: Collection[str] = ()
    ) -> None:
        self._pages = dict(pages)
        self._local = frozenset(local)
        self._limits = limits or PlainLimits()
        self._connections = _Connections(self._limits)
        self._listener: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; 0 while the server is not listening."""
        return 0 if self._listener is None else int(self._listener.sockets[0].getsockname()[1])

    async def start(self, host: str | None, port: int) -> None:
        """Listen, on every address when `host` is None; port 0 takes a free one. Raises OSError."""
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self._connections, self._answer), host, port, backlog=2 * self._limits.connections
        )

    async def stop(self, timeout_seconds: float = 1.0) -> None:
        """Listen no more; what is being answered gets its answer within `timeout_seconds`."""
        if self._listener is not None:
            self._listener.close()
        self._listener = None
        for connection in tuple(self._connections.present):
            if not connection.asked:
                connection.abort()
        closing = [connection.closed for connection in self._connections.present]
        if closing:
            await asyncio.wait(closing, timeout=timeout_seconds)
        for connection in tuple(self._connections.present):
            connection.abort()

    async def _answer(self, request: PlainRequest, source: str) -> PlainResponse:
        page = self._pages.get(request.path)
        if page is None:
            return PlainResponse.text(f"there is {', '.join(self._pages)}\n", 404)
        if request.path in self._local and source not in _LOOPBACK:
            return PlainResponse.text(f"{request.path} is for callers in this pod only\n", 403)
        if request.method not in {"GET", "HEAD"}:
            return PlainResponse(b"only GET\n", 405, headers={"Allow": "GET, HEAD"})
        try:
            made = page()
            return made if isinstance(made, PlainResponse) else await made
        except Exception:
            log.exception("%s cannot be answered", request.path)
            return PlainResponse.text("see the log\n", 500)


class ThrottledCache:
    """What is costly to make, made at most for a tenth of the time: who asks more often gets what was made last.

    What it costs is the processor's time (`spent`): by the `clock`, it would be made less often on a busy machine.
    """

    def __init__(
        self,
        make: Callable[[], bytes],
        *,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._make = make
        self._clock = clock
        self._spent = spent
        self._made = b""
        self._again = float("-inf")

    def __call__(self) -> bytes:
        """Return it, made now or a moment ago."""
        if self._clock() >= self._again:
            began = self._spent()
            self._made = self._make()
            self._again = self._clock() + 9 * (self._spent() - began)
        return self._made


class _Connections(OpenConnections["_Connection"]):
    """Lets everybody in, and somebody out for it when there are too many."""

    def __init__(self, limits: PlainLimits) -> None:
        super().__init__()
        self.limits = limits

    def may_connect(self, newcomer: "_Connection") -> bool:  # noqa: ARG002 - everybody
        """Make room when there is none."""
        if len(self.present) >= self.limits.connections:
            most = max(self.sources.values())
            crowd = [one for one in self.present if self.sources[one.source] == most]
            next((one for one in crowd if not one.asked), crowd[0]).abort()
        return True


class _Connection(asyncio.Protocol):
    """One request, one answer, in time.

    `asked` is whether the head of the request has arrived; `closed` is done when the connection has ended.
    """

    def __init__(
        self, connections: _Connections, answer: Callable[[PlainRequest, str], Awaitable[PlainResponse]]
    ) -> None:
        self._connections = connections
        self._limits = connections.limits
        self._answer = answer
        self._transport: asyncio.Transport | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._head = bytearray()
        self._brought = 0
        self.source = "unknown"
        self.asked = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and let its time run."""
        peer = transport.get_extra_info("peername")
        self.source = str(peer[0]) if peer else "unknown"
        self._transport = cast("asyncio.Transport", transport)
        self._connections.enter(self)
        loop = asyncio.get_running_loop()
        self._timers = [
            loop.call_later(self._limits.head_seconds, self._end_if_silent),
            loop.call_later(self._limits.life_seconds, self.abort),
        ]

    def connection_lost(self, exc: BaseException | None) -> None:  # noqa: ARG002 - a connection may end at any time
        """Stop the clocks, and what nobody waits for any more."""
        for timer in self._timers:
            timer.cancel()
        if self._answering is not None:
            self._answering.cancel()
        self._transport = None
        self.closed.set_result(None)
        self._connections.leave(self)

    def data_received(self, data: bytes) -> None:
        """Read the head of one request, until it is too much."""
        self._brought += len(data)
        if self._brought > self._limits.request_bytes:
            self.abort()
        elif not self.asked:
            self._head += data
            self._read()

    def eof_received(self) -> bool:
        """Keep the connection of a client that has asked and sends no more; end any other one."""
        return self.asked

    def abort(self) -> None:
        """End the connection at once. A client that does not read its answer could otherwise keep it open for ever."""
        self._connections.leave(self)
        if self._transport is not None:
            self._transport.abort()

    def _read(self) -> None:
        try:
            request = parse_request(self._head)
        except MalformedRequestError as error:
            log.debug("a request from %s: %s", self.source, error)
            self.asked = True
            self._send(_NOT_HTTP)
            return
        if request is not None:
            self.asked = True
            self._head.clear()
            self._answering = asyncio.get_running_loop().create_task(self._respond(request))

    async def _respond(self, request: PlainRequest) -> None:
        response = await self._answer(request, self.source)
        self._send(response, with_body=request.method != "HEAD")

    def _send(self, response: PlainResponse, *, with_body: bool = True) -> None:
        from email.utils import formatdate  # noqa: PLC0415 - 4 ms of the start of each worker

        if self._transport is not None:
            self._transport.write(response.encode(formatdate(usegmt=True), with_body=with_body))
            self._transport.close()

    def _end_if_silent(self) -> None:
        if not self.asked:
            self.abort()
