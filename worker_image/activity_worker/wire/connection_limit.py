"""Connections that anybody may make: counted by source, and what breaks them or is no HTTP is never worth a traceback.

The report port and the health ports of operator and worker are made of these.
"""

import asyncio
import errno
import logging
import ssl
from collections import Counter
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

log = logging.getLogger(__name__)

#: What a connection's end raises, or what comes over it and is no HTTP. A socket's time-out is a TimeoutError.
_BROKEN = (ConnectionError, TimeoutError, ssl.SSLError, EOFError, web.RequestPayloadError, HttpProcessingError)
#: Other errors of the network; any other OSError may be a bug.
_LOST = frozenset({errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.EPROTO})


def is_connection_error(error: BaseException) -> bool:
    """Tell whether an error that was met while a connection was read or written is the connection's, and no bug."""
    return isinstance(error, _BROKEN) or (isinstance(error, OSError) and error.errno in _LOST)


class ConnectionLimiter(web.Server):
    """Keeps the connections that are open, the oldest first, and how many each source address has.

    A subclass makes the protocols (`__call__`) and says who may stay.
    """

    def __init__(self, handler: Any) -> None:
        super().__init__(handler)
        self.present: dict[LimitedConnection, None] = {}
        self.sources: Counter[str] = Counter()

    def may_connect(self, newcomer: "LimitedConnection") -> bool:
        """Say whether a connection that is not counted yet may stay."""
        raise NotImplementedError

    def refusal(self) -> web.Response:
        """Return the answer to what is no HTTP; the connection ends with it."""
        raise NotImplementedError

    def enter(self, connection: "LimitedConnection") -> bool:
        """Count a new connection; False when it may not stay."""
        if not self.may_connect(connection):
            return False
        self.present[connection] = None
        self.sources[connection.source] += 1
        return True

    def leave(self, connection: "LimitedConnection") -> None:
        """Stop counting a connection; a second call changes nothing."""
        if connection not in self.present:
            return
        del self.present[connection]
        self.sources[connection.source] -= 1
        if not self.sources[connection.source]:
            del self.sources[connection.source]


class LimitedConnection(RequestHandler):
    """One connection that a `ConnectionLimiter` counts. `source` is the address that it comes from."""

    __slots__ = ("_limiter", "_wire", "source")

    def __init__(self, limiter: ConnectionLimiter, **options: Any) -> None:
        quiet: dict[str, Any] = {"access_log": None, "auto_decompress": False}
        super().__init__(limiter, loop=asyncio.get_running_loop(), **quiet, **options)
        self._limiter = limiter
        self._wire: asyncio.Transport | None = None
        self.source = ""

    @property
    def asked(self) -> bool:
        """Whether a whole head of a request has come."""
        return self._request_count > 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection or end it."""
        line = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.source = str(peer[0]) if peer else "unknown"
        if not self._limiter.enter(self):
            transport.close()
            return
        self._wire = line
        super().connection_made(line)
        self.on_connected(line)

    def on_connected(self, transport: asyncio.Transport) -> None:
        """Do what is to be done with a connection that may stay."""

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count it out."""
        self._limiter.leave(self)
        self._wire = None
        super().connection_lost(exc)

    def abort(self) -> None:
        """End it now, whatever is still to be sent: who does not read would keep it open for ever."""
        self._limiter.leave(self)
        if self._wire is not None:
            self._wire.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP in words of our own, end the connection, and log nothing.

        aiohttp logs a traceback with the bytes it could not read: a stranger's words, perhaps with a token among them,
        as often as they like.
        """
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        response = self._limiter.refusal()
        response.force_close()
        return response

    def log_exception(self, *args: Any, **options: Any) -> None:
        """Log a bug with its traceback, and a connection that broke in one line, for those who look for it."""
        error = options.get("exc_info")
        if isinstance(error, BaseException) and is_connection_error(error):
            log.debug("a connection from %s broke: %s", self.source, type(error).__name__)
        else:
            super().log_exception(*args, **options)
