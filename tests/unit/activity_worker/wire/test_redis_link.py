"""A connection on which commands and replies keep step."""

import asyncio

import pytest

from activity_worker.wire.redis_link import Link


class Wire(asyncio.Transport):
    """Notes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        """Nothing to give up."""


async def test_commands_of_which_one_cannot_be_sent_are_all_not_sent() -> None:
    link, wire = Link(), Wire()
    link.connection_made(wire)

    with pytest.raises(UnicodeEncodeError):
        await link.exchange([("SET", "first", "1"), ("SET", "second", "\ud800")], 5.0)
    asked = asyncio.create_task(link.exchange([("GET", "third")], 5.0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    link.data_received(b"$5\r\nthree\r\n")

    assert await asked == ["three"]
    assert wire.written == b"*2\r\n$3\r\nGET\r\n$5\r\nthird\r\n"
    link.connection_lost(None)
