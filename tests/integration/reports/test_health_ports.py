"""The health ports of operator and worker, which need no credentials: bounded, and always open for a probe."""

import asyncio
import gc
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from activity_operator import health as of_operator
from activity_worker.contract import WorkerState
from activity_worker.supervisor import health as of_worker
from activity_worker.supervisor.metrics import WorkerMetrics
from activity_worker.wire.plain_server import PlainLimits
from tests.eventually import eventually
from tests.integration.worker.process import probe

Server = of_operator.OperatorHealthServer | of_worker.WorkerHealthServer
Start = Callable[..., Awaitable[Server]]
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: Another source address than that of the test's own probes.
STRANGER = "127.0.0.2"
#: The requests of Prometheus and kubelet.
ASKED = {
    "/metrics": (
        "User-Agent: Prometheus/3.5.0",
        "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=1.0.0;q=0.4,*/*;q=0.2",
        "Accept-Encoding: gzip",
        "X-Prometheus-Scrape-Timeout-Seconds: 10",
        f"Authorization: Bearer {'x' * 4000}",
    ),
    "/livez": ("User-Agent: kube-probe/1.34", "Accept: */*", "Connection: close"),
}


@pytest.fixture(params=["operator", "worker"])
async def start(request: pytest.FixtureRequest) -> AsyncIterator[Start]:
    """Start servers with given limits; all are stopped at the end."""
    servers: list[Server] = []

    async def start_one(**limits: Any) -> Server:
        bounds = replace(PlainLimits(), **limits)
        if request.param == "operator":
            operator = of_operator.OperatorHealthServer({}, {}, lambda: b"up 1\n", "127.0.0.1", 0, bounds)
            await operator.start()
            servers.append(operator)
        else:
            metrics = WorkerMetrics("1.2.3", 1)
            worker = of_worker.WorkerHealthServer(
                metrics.registry, lambda: WorkerState.RUNNING, lambda: "", limits=bounds
            )
            await worker.start(0, "127.0.0.1")
            servers.append(worker)
        return servers[-1]

    yield start_one
    for server in servers:
        await server.stop()


@pytest.fixture(autouse=True)
async def quiet(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """Fail the test if strangers caused a log line above INFO, a traceback, or a task's end."""
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: unheard.append(what))
    caplog.set_level(logging.DEBUG)
    yield
    gc.collect()
    await asyncio.sleep(0)
    assert unheard == []
    logged = [line for line in caplog.get_records("call") if line.exc_info or line.levelno > logging.INFO]
    assert [line.getMessage() for line in logged] == []


async def connect(port: int, source: str = STRANGER) -> Line:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))


async def rest(line: Line) -> bytes:
    """Read until the server closes the connection."""
    try:
        async with asyncio.timeout(20.0):
            return await line[0].read()
    except ConnectionError:
        return b""
    finally:
        line[1].close()


def open_connections(server: Any) -> Any:
    return server._server._connections


@pytest.mark.parametrize("path", ASKED)
async def test_probes_and_scrapes_are_answered_and_closed(start: Start, path: str) -> None:
    line = await connect((await start()).port)
    line[1].write("\r\n".join((f"GET {path} HTTP/1.1", "Host: 10.0.0.1:8080", *ASKED[path], "", "")).encode())
    answer = await rest(line)

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in answer


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /metrics/../livez HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", b"405"),
        (b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{", b"405"),
        (b"GET /livez HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n", b"400"),
        (b"GET /" + b"x" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n", b"400"),
        (b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 80 + b"\r\n", b"400"),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1 secret-token\r\n\r\n", b"400"),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 3, b"200"),
    ],
    ids=[
        "HEAD", "dots", "unknown", "POST", "a body that never comes", "chunks that are none", "long line",
        "long header", "many headers", "TLS", "three at once",
    ],
)  # fmt: skip
async def test_other_request_is_answered_once_and_not_logged(
    start: Start, asked: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    line = await connect((await start()).port)
    line[1].write(asked)
    answer = await rest(line)

    assert answer.split(b" ", 2)[1] == status
    assert answer.count(b"HTTP/1.") == 1 + answer.count(b"not HTTP/1.")
    assert "secret-token" not in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


@pytest.mark.parametrize(
    "asked", [b"GET /" + b"x" * 2**20, b"GET /livez HTTP/1.1\r\nX: " + b"x" * 2**20, b"X" * 2**20], ids=str
)
async def test_oversized_request_is_cut_off(start: Start, asked: bytes) -> None:
    line = await connect((await start()).port)
    line[1].write(asked)

    assert (await rest(line))[:12] in {b"", b"HTTP/1.1 400", b"HTTP/1.0 400"}


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\n"], ids=["nothing", "half a head"])
async def test_missing_head_times_out(start: Start, sent: bytes) -> None:
    line = await connect((await start(head_seconds=0.2)).port)
    line[1].write(sent)

    assert await rest(line) == b""


async def test_slow_head_is_cut_off(start: Start) -> None:
    line = await connect((await start(head_seconds=0.3)).port)

    async def trickle() -> None:
        for letter in b"GET /livez HTTP/1.1\r\nX: " + b"x" * 5000:
            line[1].write(bytes([letter]))
            await asyncio.sleep(0.02)

    trickling = asyncio.create_task(trickle())
    assert await rest(line) == b""
    trickling.cancel()


async def test_silent_connections_do_not_block_a_probe(start: Start) -> None:
    server = await start(connections=8, head_seconds=60.0)
    silent = [await connect(server.port) for _ in range(50)]
    await eventually("eight connections are present", lambda: len(open_connections(server).present) == 8)
    for _ in range(3):
        assert (await probe(server.port, "/livez"))[0] == 200
        assert len(open_connections(server).present) <= 8

    ended = [reader.at_eof() or reader.exception() is not None for reader, _ in silent]
    assert ended.index(False) >= 40, "the oldest connection must be closed first"
    for _, writer in silent:
        writer.close()


async def test_busy_source_loses_its_own_connections_and_not_a_probes(start: Start) -> None:
    server = await start(connections=8, head_seconds=60.0)
    slow = await connect(server.port, "127.0.0.1")
    slow[1].write(b"GET /livez HTTP/1.1\r\n")
    await eventually("one connection is present", lambda: len(open_connections(server).present) == 1)
    strangers = [await connect(server.port) for _ in range(50)]
    await eventually(
        "seven connections come from the stranger", lambda: open_connections(server).sources[STRANGER] == 7
    )
    slow[1].write(b"Host: x\r\n\r\n")

    assert (await rest(slow)).startswith(b"HTTP/1.1 200 ")
    for _, writer in strangers:
        writer.close()


async def test_closed_connections_are_not_counted(start: Start) -> None:
    server = await start(connections=2)
    for _ in range(10):
        assert (await probe(server.port, "/livez"))[0] == 200

    await eventually(
        "no connection is left", lambda: not open_connections(server).present and not open_connections(server).sources
    )


async def test_answer_that_is_not_read_is_abandoned() -> None:
    """A graceful close would keep such a connection for ever."""
    body = b"x" * 2**24
    server = of_operator.OperatorHealthServer({}, {}, lambda: body, "127.0.0.1", 0, PlainLimits(life_seconds=0.5))
    await server.start()
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(line, ("127.0.0.1", server.port))
        await loop.sock_sendall(line, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        present = open_connections(server).present
        await eventually("a connection has sent a request", lambda: any(one.asked for one in present))
        await eventually("no connection is present", lambda: not present)
        received = 0
        while piece := await loop.sock_recv(line, 2**20):
            received += len(piece)
        assert received < len(body)
    await server.stop()
