"""One connection of HTTP/1.1 that carries one request after the other."""

import asyncio
import socket
import ssl
from typing import cast

import aiohappyeyeballs

from activity_worker.wire.http_response import HttpResponse, MalformedResponseError, ResponseParser

#: The next address of a host is tried beside a connection that is not made after so long (RFC 8305).
_NEXT_ADDRESS_SECONDS = 0.25


class HttpConnection(asyncio.Protocol):
    """Made by `connect`. One request at a time; `close` it after an error, because an answer may still come."""

    __slots__ = ("_answer", "_closed", "_loop", "_parser", "_transport", "idle_since")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = ResponseParser()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpResponse] | None = None
        self._closed: asyncio.Future[None] | None = None
        self.idle_since = 0.0

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent."""
        return self._transport is not None and self._answer is None and self._parser.reusable and self._parser.empty

    async def exchange(self, request: bytes) -> HttpResponse:
        """Send a request and return its response. Raises ConnectionError."""
        if self._transport is None:
            raise ConnectionResetError("the server has closed the connection")
        self._answer = self._loop.create_future()
        self._transport.write(request)
        try:
            return await self._answer
        finally:
            self._answer = None

    async def close(self) -> None:
        """Close the connection at once; a request under way fails. Return when the socket is closed."""
        if self._transport is not None:
            self._closed = self._closed or self._loop.create_future()
            self._transport.abort()
            await self._closed

    def abort(self) -> None:
        """Close the connection at once, without waiting for it."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read a response; bytes without a request end the connection."""
        answer = self._answer
        if answer is None or answer.done():
            self.abort()
            return
        try:
            response = self._parser.feed(data)
        except MalformedResponseError as error:
            answer.set_exception(error)
            self.abort()
            return
        if response is not None:
            answer.set_result(response)

    def eof_received(self) -> None:
        """Take the end as the end of a body that has no stated length."""
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request under way."""
        self._transport = None
        self._end(exc)
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def _end(self, error: Exception | None) -> None:
        answer = self._answer
        response = self._parser.end() if error is None else None
        if answer is None or answer.done():
            return
        if response is not None:
            answer.set_result(response)
        else:
            said = "the connection ended before the answer was complete"
            answer.set_exception(ConnectionResetError(f"{said}: {error}" if error else said))


async def connect(host: str, port: int, tls: ssl.SSLContext | None, *, name: str) -> HttpConnection:
    """Return a connection to the first address of `host` that answers. TLS checks `name`. Raises OSError."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    connected = await aiohappyeyeballs.start_connection(
        addresses, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS, interleave=1
    )
    try:
        _, connection = await loop.create_connection(
            HttpConnection, sock=connected, ssl=tls, server_hostname=name if tls is not None else None
        )
    except BaseException:
        connected.close()
        raise
    return connection
