"""One connection to one Redis server: commands go out together and are answered in order.

The library's own connections take about ten times the time for a command (see docs/redis.md), which is what a worker
of many slots is made of.
"""

import asyncio
import re
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import hiredis

from activity_worker.wire.redis_errors import RedisError, RedisErrorKind, answer_too_large, refusal, unreachable
from activity_worker.wire.redis_limits import ANY_SERVER, RedisLimits
from activity_worker.wire.redis_url import RedisTls, RedisUrl

Arg = str | bytes | int | float
Command = tuple[Arg, ...]

#: How a server's answers become text and back; ids that are not UTF-8 survive it.
_ERRORS: Final = "surrogateescape"
#: The header of a list and its number of elements, for which the parser reserves memory before they arrive. The next
#: header may begin with the line's end, so the end is no part of the match.
_LIST_HEADER: Final = re.compile(rb"\r\n[*%~>|]([0-9]{4,})(?=\r\n)")
#: Longest header of a list, in bytes: a header may arrive in two pieces.
_HEADER_BYTES: Final = 32
#: Bytes of the shortest element of a list.
_LEAST_ELEMENT_BYTES: Final = 3

#: How much of the time for a connection its TLS handshake may take.
_HANDSHAKE_SHARE: Final = 0.8


class ErrorReply(Exception):  # noqa: N818 - a server's word: it stands among the replies of a pipeline
    """An error reply; `error` says it in our words."""

    @property
    def error(self) -> RedisError:
        """The error to raise."""
        return refusal(str(self.args[0]) if self.args else "")


class _Exchange:
    """Commands that were sent together, and their replies so far."""

    __slots__ = ("deadline", "done", "replies", "wanted")

    def __init__(self, wanted: int, done: "asyncio.Future[list[Any]]", deadline: float) -> None:
        self.wanted = wanted
        self.done = done
        self.deadline = deadline
        self.replies: list[Any] = []


class RedisPipeline(asyncio.Protocol):
    """A connection in use. It never comes back once it is lost: `broken` says why, and calls raise that.

    It breaks if the answers to one exchange are larger than `answer_bytes`, or if the server sends data that no command
    asked for.
    """

    def __init__(self, answer_bytes: int = ANY_SERVER.answer_bytes) -> None:
        self.broken: RedisError | None = None
        self._answer_bytes = answer_bytes
        #: Bytes that belong to the answers of the oldest exchange, or to none.
        self._unread = 0
        #: The end of what was received, which may be the beginning of a list's header.
        self._tail = b"\r\n"
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(encoding="utf-8", errors=_ERRORS, replyError=ErrorReply)
        self._waiting: deque[_Exchange] = deque()
        self._out: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._heard = False
        self._closed: asyncio.Future[None] = self._loop.create_future()

    async def exchange(self, commands: Sequence[Command], seconds: float) -> list[Any]:
        """Send commands and return their replies, with an `ErrorReply` for each refused one. Raises `RedisError`.

        The answers must begin within `seconds`; silence breaks the connection, for all exchanges on it. Cancelling the
        call leaves the connection whole, and the commands carried out.
        """
        if self.broken is not None:
            raise self.broken
        done: asyncio.Future[list[Any]] = self._loop.create_future()
        # All of it or nothing: a reply to half of it would be taken for another exchange's.
        packed = [_pack(command) for command in commands]
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += packed
        self._waiting.append(_Exchange(len(commands), done, self._loop.time() + seconds))
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._look)
        return await done

    async def close(self) -> None:
        """Close the connection; calls under way end with an error."""
        self.give_up(unreachable("ConnectionClosed", "the connection was closed on this side"))
        if self._transport is not None:
            await asyncio.wait((self._closed,), timeout=1.0)

    def give_up(self, error: RedisError) -> None:
        """Break the connection; calls under way raise `error`."""
        if self.broken is None:
            self.broken = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            exchange = self._waiting.popleft()
            if not exchange.done.done():
                exchange.done.set_exception(self.broken)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand replies to the exchanges that wait for them; break the connection if the server sends anything else."""
        if self.broken is not None:
            return
        self._heard = True
        self._unread += len(data)
        if self._unread > self._answer_bytes or self._announces_too_much(data):
            self._refuse_answer()
            return
        try:
            self._reader.feed(data)
            self._hand_out(len(data))
            if not self._waiting and self._unread:
                self._refuse_unasked(self._reader.gets())
        except hiredis.ProtocolError:
            self.give_up(unreachable("NotRedis", "the answer is not the Redis protocol; a TLS port wants rediss://"))

    def _hand_out(self, received: int) -> None:
        """Give the replies that are complete to the exchanges; `received` is the length of the last piece in bytes."""
        reader, waiting = self._reader, self._waiting
        while waiting:
            exchange = waiting[0]
            reply = reader.gets()
            if reply is False:
                return
            exchange.replies.append(reply)
            if len(exchange.replies) == exchange.wanted:
                waiting.popleft()
                # What is left is a part of the last piece.
                self._unread = received if reader.has_data() else 0
                if not exchange.done.done():
                    exchange.done.set_result(exchange.replies)

    def _announces_too_much(self, data: bytes) -> bool:
        """Tell whether a list's header announces more elements than the largest answer can hold."""
        seen = self._tail + data
        self._tail = seen[-_HEADER_BYTES:]
        most = self._answer_bytes // _LEAST_ELEMENT_BYTES
        return any(int(found[1][:20]) > most for found in _LIST_HEADER.finditer(seen))

    def _refuse_answer(self) -> None:
        """Break the connection: the oldest exchange's answer is too large, and the other exchanges get no answer."""
        if self._waiting:
            exchange = self._waiting.popleft()
            if not exchange.done.done():
                exchange.done.set_exception(answer_too_large(self._answer_bytes))
        self.give_up(
            unreachable("ConnectionLost", "the connection was broken on this side: an answer on it was too large")
        )

    def _refuse_unasked(self, reply: Any) -> None:
        """Break the connection: the server says what no command asked for. It may be why it ends the connection."""
        if isinstance(reply, ErrorReply):
            self.give_up(reply.error)
        else:
            self.give_up(unreachable("UnaskedAnswer", "the server sent data that no command asked for"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End: whatever was under way may or may not have been carried out."""
        if not self._closed.done():
            self._closed.set_result(None)
        if isinstance(exc, ssl.SSLError):
            self.give_up(tls_error(exc))
        else:
            words = "the server, or the way to it, ended the connection"
            # A server that speaks TLS does so when it is spoken to without.
            silent = "" if self._heard else " before it said a word: does it speak TLS on this port (rediss://)?"
            self.give_up(unreachable("ConnectionLost", words + silent))

    def _flush(self) -> None:
        if self._transport is not None and self.broken is None:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def _look(self) -> None:
        """Break a connection on which the oldest call has waited too long; one timer serves all calls."""
        self._timer = None
        if not self._waiting:
            return
        left = min(exchange.deadline for exchange in self._waiting) - self._loop.time()
        if left <= 0:
            self.give_up(unreachable("AnswerTimeout", "the server did not answer in time"))
        else:
            self._timer = self._loop.call_later(left, self._look)


async def connect(url: RedisUrl, host: str, port: int, limits: RedisLimits) -> RedisPipeline:
    """Return a connection to `host`, encrypted and logged in as `url` says; raises `RedisError`."""
    return await _open(url, host, port, _hello(url.username, url.password, url), limits)


async def connect_sentinel(url: RedisUrl, host: str, port: int, limits: RedisLimits) -> RedisPipeline:
    """Return a connection to a sentinel; raises `RedisError`."""
    return await _open(url, host, port, _hello(url.sentinel_username, url.sentinel_password, None), limits)


async def _open(url: RedisUrl, host: str, port: int, hello: list[Command], limits: RedisLimits) -> RedisPipeline:
    """Return a connection on which the commands of `hello` were accepted; raises `RedisError`."""
    tls, seconds = url.tls, url.connect_seconds
    loop = asyncio.get_running_loop()
    context = None if tls is None else _context(tls)
    connection: RedisPipeline | None = None
    try:
        async with asyncio.timeout(seconds):
            # Sooner than all of it: then it is TLS that fails, and the connection stands.
            patience = None if context is None else _HANDSHAKE_SHARE * seconds
            _, connection = await loop.create_connection(
                partial(RedisPipeline, limits.answer_bytes), host, port, ssl=context, ssl_handshake_timeout=patience
            )
            if hello:
                _agreed(await connection.exchange(hello, seconds))
    except BaseException as error:
        if connection is not None:
            await connection.close()
        raise _connect_error(error, secure=tls is not None) from error
    return connection


def _agreed(replies: list[Any]) -> None:
    for reply in replies:
        if isinstance(reply, ErrorReply):
            raise reply.error


def _hello(username: str | None, password: str | None, url: RedisUrl | None) -> list[Command]:
    hello: list[Command] = []
    if password is not None:
        hello.append(("AUTH", password) if username is None else ("AUTH", username, password))
    if url is not None and url.client_name is not None:
        hello.append(("CLIENT", "SETNAME", url.client_name))
    if url is not None and url.database:
        hello.append(("SELECT", url.database))
    return hello


def _context(tls: RedisTls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_certs, cadata=tls.ca_data)
        if tls.certfile is not None:
            context.load_cert_chain(tls.certfile, tls.keyfile)
    except (OSError, ssl.SSLError) as error:
        given = tls.ca_data and "ssl_ca_data"
        files = ", ".join(filter(None, (tls.ca_certs, given, tls.certfile, tls.keyfile)))
        raise RedisError(
            "TlsFailed", f"cannot read the certificates in {files}: {error}", RedisErrorKind.TLS
        ) from error
    if tls.cert_reqs == "none" or not tls.check_hostname:
        context.check_hostname = False
    if tls.cert_reqs != "required":
        context.verify_mode = ssl.CERT_NONE if tls.cert_reqs == "none" else ssl.CERT_OPTIONAL
    return context


def tls_error(error: ssl.SSLError) -> RedisError:
    """Return our error for one of TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        words = f"the server's certificate is not trusted ({error.verify_message}): give its CA as ssl_ca_data or "
        words += "ssl_ca_certs"
    else:
        words = f"TLS with the server fails ({error.reason or 'no reason'}): does it speak TLS on this port?"
    return RedisError("TlsFailed", words, RedisErrorKind.TLS)


def _connect_error(error: BaseException, *, secure: bool) -> BaseException:
    if isinstance(error, ssl.SSLError):
        return tls_error(error)
    if isinstance(error, socket.gaierror):
        return unreachable("NameNotResolved", "the host's name does not resolve")
    if isinstance(error, TimeoutError):
        return unreachable("ConnectTimeout", "no connection in time")
    if secure and isinstance(error, ConnectionAbortedError):
        return RedisError("TlsFailed", "no TLS handshake in time: does it speak TLS on this port?", RedisErrorKind.TLS)
    if isinstance(error, ConnectionRefusedError):
        return unreachable("ConnectionRefused", "nothing listens there")
    if isinstance(error, OSError):
        return unreachable("ConnectFailed", error.strerror or type(error).__name__)
    return error


def _pack(command: Command) -> bytes:
    try:
        packed: bytes = hiredis.pack_command(cast("Any", command))
    except UnicodeEncodeError:
        plain = tuple(arg.encode(errors=_ERRORS) if isinstance(arg, str) else arg for arg in command)
        packed = hiredis.pack_command(cast("Any", plain))
    return packed
