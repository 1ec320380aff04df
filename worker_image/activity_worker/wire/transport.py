"""HTTP for long polls and short calls over one pool of connections.

The pool is unlimited, so no number of open polls can keep a heartbeat waiting for a connection. TLS contexts are shared
by all clients of a process.

The connections are this package's own, because aiohttp's client takes more processor time for a call than everything
else in a no-op task, and half of a worker's start to import (decision 9). Calls through a proxy go over aiohttp.
"""

import asyncio
import functools
import os
import ssl
import sys
from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from activity_worker.contract import VERSION
from activity_worker.wire.errors import EndpointUnreachableError
from activity_worker.wire.grace_timeout import GraceTimeout
from activity_worker.wire.http_connection import HttpConnection, connect
from activity_worker.wire.http_response import HttpResponse

if TYPE_CHECKING:
    from activity_worker.wire.proxied_transport import ProxiedTransport

CONNECT_TIMEOUT_SECONDS = 10.0
#: A connection without a request is closed after this: sooner than services close it, so that none is closed in use.
IDLE_SECONDS = 15.0
DEFAULT_PORTS = {"http": 80, "https": 443}
#: The name under which our calls show in CloudTrail.
USER_AGENT = f"activitypool/{VERSION}"


class Transport:
    """POSTs to one URL. Opened at the first request, on the loop that makes it; `close` it on that loop.

    `ca_bundle` is a PEM file of trusted CAs; `tls` is a context to use instead. `direct` uses no proxy.
    """

    def __init__(
        self,
        url: str,
        *,
        ca_bundle: str = "",
        tls: ssl.SSLContext | None = None,
        idle_seconds: float = IDLE_SECONDS,
        direct: bool = False,
    ) -> None:
        parts = urlsplit(url)
        self._url = url
        self._scheme, self._host = parts.scheme, parts.hostname or ""
        #: The host's address or name to connect to. TLS and the header Host have the URL's host.
        self.address = self._host
        self._port = parts.port or DEFAULT_PORTS[parts.scheme]
        self._tls = tls
        self._ca_bundle = ca_bundle
        self._idle_seconds = idle_seconds
        self._direct = direct
        path = quote(parts.path, safe="/%~:@!$&'()*+,;=") or "/"
        self._target = f"{path}?{parts.query}" if parts.query else path
        self._head = ""
        self._proxied: ProxiedTransport | None = None
        self._open: set[HttpConnection] = set()
        self._idle: deque[HttpConnection] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def post(self, headers: dict[str, str], body: bytes, *, timeout_seconds: float) -> HttpResponse:
        """Send one request and read its answer. Nothing is retried and no redirect is followed.

        Raises EndpointUnreachableError when there is no complete answer within `timeout_seconds` and the grace of
        `GraceTimeout`.
        """
        if not self._head:
            self._begin()
        if self._proxied is not None:
            return await self._proxied.post(headers, body, timeout_seconds=timeout_seconds)
        request = self._request(headers, body)
        connection = self._take_idle()
        try:
            with GraceTimeout(timeout_seconds):
                connection = connection or await self._connect(min(timeout_seconds, CONNECT_TIMEOUT_SECONDS))
                response = await connection.exchange(request)
        except BaseException as error:
            if connection is not None:
                # Its answer may still come, and must not be taken for that of another request.
                self._drop(connection)
            if isinstance(error, OSError):
                raise self._unreachable(error, timeout_seconds, connected=connection is not None) from None
            raise
        if connection.reusable:
            self._put_idle(connection)
        else:
            self._drop(connection)
        return response

    async def close(self) -> None:
        """Close every connection and wait until they are closed; requests under way fail."""
        proxied, self._proxied = self._proxied, None
        self._head = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._idle.clear()
        for connection in tuple(self._open):
            self._open.discard(connection)
            await connection.close()
        if proxied is not None:
            await proxied.close()

    def _begin(self) -> None:
        """Look at the environment once, and make what is the same in all requests."""
        if not self._direct and has_proxy(self._scheme, self._host):
            from activity_worker.wire.proxied_transport import ProxiedTransport  # noqa: PLC0415 - aiohttp, 0.1 s

            self._proxied = ProxiedTransport(self._url, tls=self._context(), user_agent=USER_AGENT)
        self._head = (
            f"POST {self._target} HTTP/1.1\r\nUser-Agent: {USER_AGENT}\r\nAccept: */*\r\nAccept-Encoding: identity\r\n"
        )

    def _context(self) -> ssl.SSLContext | None:
        if self._scheme != "https":
            return None
        self._tls = self._tls or _tls(self._ca_bundle)
        return self._tls

    def _request(self, headers: dict[str, str], body: bytes) -> bytes:
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        if "Host" not in headers:
            lines.append(f"Host: {host_header(self._scheme, self._host, self._port)}\r\n")
        fields = "".join(lines)
        if fields.count("\n") != len(lines):
            raise ValueError("a header has a line break; look at the credentials for one")
        return f"{self._head}{fields}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def _connect(self, seconds: float) -> HttpConnection:
        async with asyncio.timeout(seconds):
            connection = await connect(self.address, self._port, self._context(), name=self._host)
        self._open.add(connection)
        return connection

    def _take_idle(self) -> HttpConnection | None:
        while self._idle:
            # The one that was used last: the others can become old enough to be closed.
            connection = self._idle.pop()
            if connection.reusable:
                return connection
            self._drop(connection)
        return None

    def _put_idle(self, connection: HttpConnection) -> None:
        connection.idle_since = now = asyncio.get_running_loop().time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(now + self._idle_seconds, self._close_idle)

    def _close_idle(self) -> None:
        """Close the connections that have been idle for too long, the oldest of which are first."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._idle:
            ends = self._idle[0].idle_since + self._idle_seconds
            if ends > loop.time():
                self._timer = loop.call_at(ends, self._close_idle)
                return
            self._drop(self._idle.popleft())

    def _drop(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        connection.abort()

    def _unreachable(self, error: OSError, timeout_seconds: float, *, connected: bool) -> EndpointUnreachableError:
        place = f"{self._scheme}://{self._host}:{self._port}"
        if isinstance(error, TimeoutError):
            where, code = ("no answer", "ReadTimeout") if connected else ("no connection", "EndpointUnreachable")
            return EndpointUnreachableError(code, f"{place}: {where} in time ({timeout_seconds:g} s)")
        what = "" if connected else "no connection: "
        return EndpointUnreachableError("EndpointUnreachable", f"{place}: {what}{error or type(error).__name__}")


def has_proxy(scheme: str, host: str) -> bool:
    """Return whether HTTP_PROXY, HTTPS_PROXY and NO_PROXY, or the system, name a proxy for this host."""
    names = {f"{scheme}_proxy", f"{scheme}_proxy".upper()}
    if sys.platform == "linux" and not names & os.environ.keys():
        return False
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - 20 ms

    return scheme in getproxies() and not proxy_bypass(host)


def host_header(scheme: str, host: str, port: int | None) -> str:
    """Return the Host header: with brackets for IPv6, and the port unless it is the scheme's own."""
    bare = f"[{host}]" if ":" in host else host
    return bare if port in {None, DEFAULT_PORTS.get(scheme)} else f"{bare}:{port}"


@functools.cache
def _tls(ca_bundle: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_bundle)
