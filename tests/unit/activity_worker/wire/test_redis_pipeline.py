"""A connection that matches replies to commands in order, and accepts no more than was asked for."""

import asyncio
from collections.abc import Iterator

import pytest

from activity_worker.wire.redis_errors import RedisError, RedisErrorKind
from activity_worker.wire.redis_pipeline import RedisPipeline


class Wire(asyncio.Transport):
    """A transport that records what is written, and whether the connection was broken."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        self.aborted = True


def connected(answer_bytes: int) -> tuple[RedisPipeline, Wire]:
    """Return a connection with this limit, and its transport."""
    link, wire = RedisPipeline(answer_bytes), Wire()
    link.connection_made(wire)
    return link, wire


async def asked(link: RedisPipeline, commands: int = 1) -> "asyncio.Task[list[object]]":
    """Send commands and return their call under way."""
    call = asyncio.create_task(link.exchange([("GET", "k")] * commands, 5.0))
    await asyncio.sleep(0)
    return call


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Yield data as a socket may deliver it."""
    return (data[at : at + size] for at in range(0, len(data), size))


async def test_command_that_cannot_be_encoded_prevents_the_whole_exchange() -> None:
    link, wire = RedisPipeline(), Wire()
    link.connection_made(wire)

    with pytest.raises(UnicodeEncodeError):
        await link.exchange([("SET", "first", "1"), ("SET", "second", "\ud800")], 5.0)
    reply = asyncio.create_task(link.exchange([("GET", "third")], 5.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    link.data_received(b"$5\r\nthree\r\n")

    assert await reply == ["three"]
    assert wire.written == b"*2\r\n$3\r\nGET\r\n$5\r\nthird\r\n"
    link.connection_lost(None)


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
async def test_answer_over_the_limit_breaks_the_connection(size: int) -> None:
    link, wire = connected(1000)
    call, other = await asked(link), await asked(link)

    for piece in pieces(b"$300000000\r\n" + b"x" * 5000, size):
        link.data_received(piece)

    with pytest.raises(RedisError, match="AnswerTooLarge: the server's answer is larger than 1000 bytes") as large:
        await call
    with pytest.raises(RedisError, match=r"ConnectionLost: .* an answer on it was too large") as lost:
        await other
    assert (large.value.retryable, lost.value.retryable) == (False, True)
    assert wire.aborted


async def test_answers_to_one_exchange_are_limited_together() -> None:
    link, wire = connected(1000)
    call = await asked(link, 5)

    for _ in range(4):
        link.data_received(b"$294\r\n" + b"x" * 294 + b"\r\n")

    with pytest.raises(RedisError, match="AnswerTooLarge"):
        await call
    assert wire.aborted


@pytest.mark.parametrize("size", [1, 13, 400])
async def test_many_answers_below_the_limit_are_all_read(size: int) -> None:
    link, wire = connected(1000)
    calls = [await asked(link) for _ in range(50)]

    for piece in pieces((b"$294\r\n" + b"x" * 294 + b"\r\n") * 50, size):
        link.data_received(piece)

    assert [await call for call in calls] == [["x" * 294]] * 50
    assert not wire.aborted


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    "header", [b"*500000000\r\n", b"*1\r\n*500000000\r\n", b"*9999\r\n*9999\r\n", b"%500000000\r\n"]
)
async def test_list_that_cannot_fit_is_refused_at_its_header(header: bytes, size: int) -> None:
    link, wire = connected(1000)
    call = await asked(link)

    for piece in pieces(header, size):
        link.data_received(piece)

    with pytest.raises(RedisError, match="AnswerTooLarge"):
        await call
    assert wire.aborted


@pytest.mark.parametrize("data", [b":1\r\n", b"$300000000\r\n", b"*3", b"+"])
async def test_data_that_no_command_asked_for_breaks_the_connection(data: bytes) -> None:
    link, wire = connected(1000)

    link.data_received(data)

    assert wire.aborted
    with pytest.raises(RedisError, match="UnaskedAnswer: the server sent data that no command asked for"):
        await link.exchange([("GET", "k")], 5.0)


async def test_answer_with_more_behind_it_is_the_last_one() -> None:
    link, wire = connected(1000)
    call = await asked(link)

    link.data_received(b":1\r\n:2\r\n")

    assert await call == [1]
    assert wire.aborted
    assert link.broken is not None
    assert link.broken.code == "UnaskedAnswer"


async def test_reason_that_a_server_gives_unasked_is_the_error() -> None:
    link, _ = connected(1000)

    link.data_received(b"-DENIED Redis is running in protected mode because\r\n")

    with pytest.raises(RedisError, match="DENIED: the server is in protected mode") as denied:
        await link.exchange([("GET", "k")], 5.0)
    assert denied.value.kind is RedisErrorKind.DENIED
