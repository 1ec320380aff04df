"""A connection that matches replies to commands in order."""

import asyncio

import pytest

from activity_worker.wire.redis_pipeline import RedisPipeline


class Wire(asyncio.Transport):
    """A transport that records what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        """Do nothing: there is no connection to abort."""


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
