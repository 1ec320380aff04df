"""Limits the connections of a server without authentication, by source address.

The operator's report port uses it. Broken connections and input that is not HTTP are not logged with a traceback.
"""

import asyncio
import errno
import logging
import ssl
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from activity_worker.wire.open_connections import OpenConnections

log = logging.getLogger(__name__)

#: Errors of a connection that ends or brings input that is not HTTP. A socket's time-out is a TimeoutError.
_BROKEN = (ConnectionError, TimeoutError, ssl.SSLError, EOFError, web.RequestPayloadError, HttpProcessingError)
#: Other errors of the network; any other OSError may be a bug.
_LOST = frozenset({errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.EPROTO})


def is_connection_error(error: BaseException) -> bool:
    """Return whether an error of reading or writing comes from the connection, and not from a bug."""
    return isinstance(error, _BROKEN) or (isinstance(error, OSError) and error.errno in _LOST)


class ConnectionLimiter(OpenConnections["LimitedConnection"], web.Server):
    """Keeps the connections that are open. A subclass makes the protocols (`__call__`) and limits (`may_connect`)."""

    def __init__(self, handler: Any) -> None:
        OpenConnections.__init__(self)
        web.Server.__init__(self, handler)

    def refusal(self) -> web.Response:
        """Return the answer to input that is not HTTP; the connection ends with it."""
        raise NotImplementedError


class LimitedConnection(RequestHandler):
    """One connection that a `ConnectionLimiter` counts. `source` is the address that it comes from."""

    __slots__ = ("_limiter", "_transport", "source")

    def __init__(self, limiter: ConnectionLimiter, **options: Any) -> None:
        quiet: dict[str, Any] = {"access_log": None, "auto_decompress": False}
        super().__init__(limiter, loop=asyncio.get_running_loop(), **quiet, **options)
        self._limiter = limiter
        self._transport: asyncio.Transport | None = None
        self.source = ""

    @property
    def asked(self) -> bool:
        """Whether the head of a request has arrived completely."""
        return self._request_count > 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection or end it."""
        connected = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.source = str(peer[0]) if peer else "unknown"
        if not self._limiter.enter(self):
            transport.close()
            return
        self._transport = connected
        super().connection_made(connected)
        self.on_connected(connected)

    def on_connected(self, transport: asyncio.Transport) -> None:
        """Called for each connection that may stay; a subclass sets its time-outs here."""

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop counting the connection."""
        self._limiter.leave(self)
        self._transport = None
        super().connection_lost(exc)

    def abort(self) -> None:
        """End the connection at once. A client that does not read its answer could otherwise keep it open for ever."""
        self._limiter.leave(self)
        if self._transport is not None:
            self._transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer input that is not HTTP with `refusal`, end the connection, and log nothing.

        aiohttp would log a traceback with the input, which may contain a token, for each such request.
        """
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        response = self._limiter.refusal()
        response.force_close()
        return response

    def log_exception(self, *args: Any, **options: Any) -> None:
        """Log a bug with its traceback, and a broken connection as one line at level DEBUG."""
        error = options.get("exc_info")
        if isinstance(error, BaseException) and is_connection_error(error):
            log.debug("a connection from %s broke: %s", self.source, type(error).__name__)
        else:
            super().log_exception(*args, **options)
