"""Redis servers that flood the operator with data, or lead it to hosts that the tenancy policy does not allow."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from activity_operator.core.tenancy import TenancyPolicy, TenancyRule
from tests.integration.backlog.counted import Counted

MIB = 1024 * 1024
#: What the sockets of both sides hold, besides the 1 MiB that the operator reads.
SOCKETS_BYTES = 16 * MIB
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class HostileServer:
    """A server on a port of its own. `connections` and `sent` (bytes) count what the operator let happen."""

    port: int = 0
    connections: int = 0
    sent: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def hostile(answer: bytes, flood: int = 0) -> AsyncIterator[HostileServer]:
    """Run a server that answers the first command with `answer` and then with `flood` bytes."""
    server = HostileServer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        try:
            await reader.read(MIB)
            writer.write(answer)
            for _ in range(0, flood, 65536):
                writer.write(b"x" * 65536)
                await writer.drain()
                server.sent += 65536
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server


def only(*addresses: str) -> TenancyPolicy:
    """Return a policy that allows sources on these hosts."""
    return TenancyPolicy((TenancyRule(source_hosts=addresses),))


@pytest.mark.parametrize("answer", [b"$300000000\r\n", b"*100000000\r\n"], ids=["text", "list"])
async def test_answer_of_300_megabytes_breaks_the_connection(counted: Counted, answer: bytes) -> None:
    async with hostile(answer, flood=300 * MIB) as server:
        counted.pool("orders", f"redis://{server.address}")
        error = await counted.fails("orders")

    assert server.sent <= SOCKETS_BYTES * server.connections
    assert error.reason == "QueryFailed"
    assert f"the Redis server redis://{server.address}/0" in error.message
    assert "AnswerTooLarge: the server's answer is larger than 1 MiB" in error.message


async def test_data_behind_the_answer_breaks_the_connection(counted: Counted) -> None:
    async with hostile(b":3\r\n$300000000\r\n", flood=300 * MIB) as server:
        counted.pool("orders", f"redis://{server.address}")
        await counted.counts("orders", 3)
        await counted.until("the operator connects again", lambda: server.connections > 2)

    assert server.sent <= SOCKETS_BYTES * server.connections


LEADS = {
    "sentinel": ("redis+sentinel", "/shop/0", "*2\r\n$9\r\n127.0.0.1\r\n${length}\r\n{port}\r\n"),
    "cluster": ("redis+cluster", "", "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n"),
}


@pytest.mark.parametrize("kind", LEADS)
async def test_server_cannot_lead_to_a_host_that_the_policy_refuses(counted: Counted, kind: str) -> None:
    scheme, path, answer = LEADS[kind]
    async with hostile(b"") as victim:
        named = answer.format(port=victim.port, length=len(str(victim.port))).encode()
        async with hostile(named) as server:
            counted.policy = only(server.address)
            counted.pool("orders", f"{scheme}://{server.address}{path}")
            error = await counted.fails("orders")

    assert error.reason == "TenancyDenied"
    assert (
        f"leads to {victim.address}: the tenancy policy's sourceHosts do not allow '{victim.address}'" in error.message
    )
    assert server.connections > 0
    assert victim.connections == 0
