"""A worker's broken connection causes no traceback and no warning; a bug causes both."""

import asyncio
import gc
import json
import logging
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from activity_operator.reports.server import ReportServer
from activity_worker.contract import Reply
from tests.eventually import eventually
from tests.integration.reports.conftest import NAME, REPORT, Office, url

Start = Callable[..., Awaitable[ReportServer]]
BODY = json.dumps(REPORT.to_wire()).encode()
HEAD = b"POST /v1/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
GOOD, BAD = HEAD % b"good", HEAD % b"bad"
WHOLE = GOOD + b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def reset(writer: asyncio.StreamWriter) -> None:
    """Close the connection with a reset, as the kernel does for a killed process."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def end_without_goodbye(writer: asyncio.StreamWriter) -> None:
    """End the connection below TLS, without a close_notify."""
    writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def garble(writer: asyncio.StreamWriter) -> None:
    """Send a TLS record that cannot be decrypted."""
    os.write(writer.get_extra_info("socket").fileno(), b"\x17\x03\x03\x00\x20" + b"x" * 32)


BREAKS = {"reset": reset, "no goodbye": end_without_goodbye, "garbled": garble}
#: What has been sent when the connection breaks.
MOMENTS = {
    "nothing asked": b"",
    "in a head": GOOD[:30],
    "in a body": GOOD + b"Content-Length: 1000\r\n\r\n" + BODY[:40],
    "in a chunk": GOOD + CHUNKED + b"40\r\n{",
    "while it is answered": WHOLE,
    "several asked": WHOLE * 5,
    "refused before its body came": BAD + b"Content-Length: 1000\r\n\r\n{",
}


@pytest.fixture
async def quiet(caplog: pytest.LogCaptureFixture) -> AsyncIterator[list[dict[str, Any]]]:
    """Fail the test if a line above INFO or with a traceback was logged, or an exception was not retrieved."""
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: unheard.append(what))
    caplog.set_level(logging.DEBUG)
    yield unheard
    # asyncio reports an exception that was not retrieved when the task is collected.
    gc.collect()
    await asyncio.sleep(0)
    assert unheard == []
    logged = [line for line in caplog.get_records("call") if line.exc_info or line.levelno > logging.INFO]
    assert [line.getMessage() for line in logged] == []


async def until_gone(server: ReportServer) -> None:
    """Wait until the server has no open connection."""
    await eventually(
        "no connection is left", lambda: server._connections is None or not server._connections.sources.total()
    )


async def answers(server: ReportServer, trust: ssl.SSLContext) -> bool:
    """Whether the server answers another worker."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as client:
        headers = {"Authorization": "Bearer good"}
        async with client.post(url(server), data=BODY, headers=headers, server_hostname=NAME) as response:
            return response.status == 200


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("how", BREAKS)
@pytest.mark.parametrize("when", MOMENTS)
async def test_broken_connection_is_not_logged(
    start: Start, trust: ssl.SSLContext, office: Office, how: str, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start()
    asked, broken = asyncio.Event(), asyncio.Event()
    answer, identify = office.answer, office.identify

    async def slowly(report: Any) -> Reply:
        asked.set()
        await broken.wait()
        return await answer(report)

    async def identified(authorization: str) -> Any:
        if not MOMENTS[when].startswith(WHOLE):
            asked.set()
        return await identify(authorization)

    office.answer = slowly  # type: ignore[method-assign]
    office.identify = identified  # type: ignore[method-assign]
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust, server_hostname=NAME)
    writer.write(MOMENTS[when])
    if b"\r\n\r\n" in MOMENTS[when]:
        await asked.wait()
    BREAKS[how](writer)
    # The server notices it before, while or after it answers.
    for _ in range(len(when) % 3):
        await asyncio.sleep(0.01)
    broken.set()
    await until_gone(server)
    writer.transport.abort()

    assert await answers(server, trust)
    ours = [line for line in caplog.records if line.name.startswith("activity_")]
    assert len(ours) <= 1
    assert not [line for line in ours if "good" in line.getMessage()]


@pytest.mark.usefixtures("quiet")
async def test_connection_broken_in_its_handshake_is_not_logged(start: Start, trust: ssl.SSLContext) -> None:
    server = await start()
    for sent in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        await writer.drain()
        reset(writer)

    assert await answers(server, trust)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("head", [GOOD, BAD], ids=["known", "stranger"])
async def test_body_that_is_no_http_is_refused_without_a_traceback(
    start: Start, trust: ssl.SSLContext, office: Office, head: bytes
) -> None:
    """A client without a token is answered before the body; the error appears while the body is discarded."""
    server = await start(request_seconds=0.5)
    asked, identify = asyncio.Event(), office.identify

    async def identified(authorization: str) -> Any:
        asked.set()
        return await identify(authorization)

    office.identify = identified  # type: ignore[method-assign]
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust, server_hostname=NAME)
    writer.write(head + CHUNKED + b"2\r\n{}\r\n")
    await asked.wait()
    # If the server waits for the whole body, no part of the answer comes before the next piece.
    line = await reader.readline() if head == BAD else b""
    writer.write(b"no size\r\n\r\n")
    line = line or await reader.readline()
    writer.close()

    # One of the HTTP library's parsers reports the error at once, the other lets the body time out.
    assert line.split()[1] in ({b"401"} if head == BAD else {b"400", b"408"})
    assert office.statuses[0] == int(line.split()[1])
    assert await answers(server, trust)


@pytest.mark.parametrize(
    "bug", [RuntimeError("a bug"), ConnectionResetError("of another connection"), TimeoutError("of a call of ours")]
)
async def test_bug_is_logged_with_its_traceback_in_any_case(
    start: Start, trust: ssl.SSLContext, office: Office, caplog: pytest.LogCaptureFixture, bug: Exception
) -> None:
    server = await start()
    office.fails = bug

    assert not await answers(server, trust)
    (line,) = [line for line in caplog.records if line.exc_info]
    assert line.getMessage() == "a report could not be answered"
    assert line.exc_info is not None
    assert line.exc_info[1] is bug
