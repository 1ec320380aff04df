"""A bound on the bytes that a PostgreSQL server can make a client hold.

The driver has no such bound: it keeps an answer until the answer is complete, and the server says how long it is. The
bound sits where the bytes arrive, in the protocol that the driver gives to the event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast


class AnswerLimit:
    """Counts the bytes since the last call of `begin`; beyond `most_bytes` the connection is cut."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.exceeded = False
        self._received = 0

    def begin(self) -> None:
        """Count from zero: the next statement is about to be sent."""
        self._received = 0

    def take(self, size: int) -> bool:
        """Count bytes that have arrived; return False if there are too many."""
        self._received += size
        self.exceeded = self.exceeded or self._received > self.most_bytes
        return not self.exceeded


class LimitedLoop:
    """The running event loop for one connection of the driver; every byte of the server counts against `limit`."""

    def __init__(self, limit: AnswerLimit) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, factory: Callable[[], Any], *where: Any, **options: Any) -> tuple[Any, Any]:
        """Connect as the loop does; return the driver's own protocol."""
        transport, limited = await self._loop.create_connection(
            lambda: _LimitedProtocol(factory(), self._limit), *where, **options
        )
        return transport, limited.inner

    async def start_tls(self, transport: Any, protocol: Any, *how: Any, **options: Any) -> Any:
        """Begin TLS as the loop does; the limit then counts the bytes inside of TLS."""
        encrypted = await self._loop.start_tls(transport, protocol, *how, **options)
        return None if encrypted is None else _LimitedTransport(encrypted, self._limit)


class _LimitedProtocol(asyncio.Protocol):
    """Passes everything to the driver's protocol, and cuts the connection at the limit."""

    def __init__(self, inner: Any, limit: AnswerLimit, transport: asyncio.Transport | None = None) -> None:
        self.inner = inner
        self._limit = limit
        self._transport = transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._limit.take(len(data)):
            self.inner.data_received(data)
        elif self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> bool | None:
        return cast("bool | None", self.inner.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()


class _LimitedTransport:
    """An encrypted connection whose next protocol is limited, too."""

    def __init__(self, transport: Any, limit: AnswerLimit) -> None:
        self._inner = transport
        self._limit = limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def set_protocol(self, protocol: Any) -> None:
        """Give the connection to the driver's protocol, which knows the connection already."""
        self._inner.set_protocol(_LimitedProtocol(protocol, self._limit, self._inner))
