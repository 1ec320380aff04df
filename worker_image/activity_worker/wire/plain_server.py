"""Serves a few short pages over plain HTTP without authentication, with limits for each client.

A connection carries one request and ends after the answer, as the kubelet's connections do. If there are too many
connections, the oldest one without a request is ended, of the source address that has the most.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from activity_worker.wire.connection_limit import ConnectionLimiter, LimitedConnection

log = logging.getLogger(__name__)

#: Makes a page, once for each request.
Page = Callable[[], web.Response | Awaitable[web.Response]]

NOT_HTTP = "the request is not HTTP/1.1 that is understood here\n"
#: The longest request line and header line. The pages' names are short; a header may hold somebody's token.
_LINE_BYTES = 1_024
_HEADER_BYTES = 8_190
_HEADERS = 64


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
        self._limiter: _PlainLimiter | None = None
        self._listener: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; 0 while the server is not listening."""
        return 0 if self._listener is None else int(self._listener.sockets[0].getsockname()[1])

    async def start(self, host: str | None, port: int) -> None:
        """Listen, on every address when `host` is None; port 0 takes a free one. Raises OSError."""
        self._limiter = _PlainLimiter(self._handle, self._limits)
        self._listener = await asyncio.get_running_loop().create_server(
            self._limiter, host, port, backlog=2 * self._limits.connections
        )

    async def stop(self, timeout_seconds: float = 1.0) -> None:
        """Listen no more; what is being answered gets its answer."""
        if self._listener is not None:
            self._listener.close()
        if self._limiter is not None:
            self._limiter.pre_shutdown()
            await self._limiter.shutdown(timeout_seconds)
            for connection in tuple(self._limiter.present):
                connection.abort()
        self._listener = self._limiter = None

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        response = await self._answer(request)
        response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        page = self._pages.get(request.path)
        if page is None:
            return web.Response(status=404, text=f"there is {', '.join(self._pages)}\n")
        if request.path in self._local and request.remote not in _LOOPBACK:
            return web.Response(status=403, text=f"{request.path} is for callers in this pod only\n")
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, text="only GET\n", headers={"Allow": "GET, HEAD"})
        try:
            made = page()
            return made if isinstance(made, web.Response) else await made
        except Exception:
            log.exception("%s cannot be answered", request.path)
            return web.Response(status=500, text="see the log\n")


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


class _PlainLimiter(ConnectionLimiter):
    """Lets everybody in, and somebody out for it when there are too many."""

    def __init__(self, handler: Any, limits: PlainLimits) -> None:
        super().__init__(handler)
        self.limits = limits

    def __call__(self) -> "_PlainConnection":
        return _PlainConnection(
            self,
            keepalive_timeout=self.limits.life_seconds,
            # An unexpected body is not read.
            lingering_time=0.0,
            read_bufsize=self.limits.request_bytes,
            max_line_size=_LINE_BYTES,
            max_field_size=_HEADER_BYTES,
            max_headers=_HEADERS,
        )

    def may_connect(self, newcomer: LimitedConnection) -> bool:  # noqa: ARG002 - everybody
        """Make room when there is none."""
        if len(self.present) >= self.limits.connections:
            most = max(self.sources.values())
            crowd = [one for one in self.present if self.sources[one.source] == most]
            next((one for one in crowd if not one.asked), crowd[0]).abort()
        return True

    def refusal(self) -> web.Response:
        """Return the answer to what is no HTTP."""
        return web.Response(status=400, text=NOT_HTTP)


class _PlainConnection(LimitedConnection):
    """One request, one answer, in time."""

    __slots__ = ("_brought", "_limits", "_timers")

    def __init__(self, limiter: _PlainLimiter, **options: Any) -> None:
        super().__init__(limiter, **options)
        self._limits = limiter.limits
        self._brought = 0
        self._timers: list[asyncio.TimerHandle] = []

    def on_connected(self, transport: asyncio.Transport) -> None:  # noqa: ARG002 - the base's
        """Let its time run."""
        loop = asyncio.get_running_loop()
        self._timers = [
            loop.call_later(self._limits.head_seconds, self._end_if_silent),
            loop.call_later(self._limits.life_seconds, self.abort),
        ]

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the clocks."""
        for timer in self._timers:
            timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read, until it is too much."""
        self._brought += len(data)
        if self._brought > self._limits.request_bytes:
            self.abort()
        else:
            super().data_received(data)

    def _end_if_silent(self) -> None:
        if not self.asked:
            self.abort()
