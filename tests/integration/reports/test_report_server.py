"""The report server over real TLS: its answers and its limits."""

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from activity_operator.reports.rate_limit import ByteLimit
from activity_operator.reports.server import ReportServer
from activity_operator.reports.worker_registry import RegistryFullError
from activity_worker.contract import MAX_REPORT_BYTES, Reply
from tests.eventually import eventually
from tests.integration.reports.conftest import NAME, REPORT, Office, url

Start = Callable[..., Awaitable[ReportServer]]
GOOD = {"Authorization": "Bearer good"}


async def post(
    client: aiohttp.ClientSession, server: ReportServer, body: Any = None, headers: Any = None, path: str = "/v1/report"
) -> tuple[int, Any, aiohttp.ClientResponse]:
    data = json.dumps(REPORT.to_wire() if body is None else body) if not isinstance(body, bytes) else body
    async with client.post(
        url(server, path), data=data, headers=GOOD if headers is None else headers, server_hostname=NAME
    ) as response:
        return response.status, await response.json(), response


async def connect(server: ReportServer, trust: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port, ssl=trust, server_hostname=NAME)


async def closed(reader: asyncio.StreamReader) -> bytes:
    """Read until the server closes the connection."""
    try:
        async with asyncio.timeout(10.0):
            return await reader.read()
    except ConnectionError:
        return b""


async def test_report_is_answered(start: Start, client: aiohttp.ClientSession, office: Office) -> None:
    server = await start()
    status, body, _ = await post(client, server)

    assert status == 200
    assert Reply.from_wire(body).term == 7
    assert office.heard == [REPORT]


async def test_reports_share_a_connection(start: Start, client: aiohttp.ClientSession, office: Office) -> None:
    server = await start(connections_per_source=1)
    for _ in range(5):
        assert (await post(client, server))[0] == 200

    assert office.statuses == [200] * 5


async def test_standby_answers_421_and_closes(start: Start, client: aiohttp.ClientSession, office: Office) -> None:
    server = await start()
    office.leads = False
    status, body, response = await post(client, server, headers={})

    assert (status, body) == (421, {"error": "another replica leads"})
    assert response.headers["Connection"] == "close"
    assert office.heard == []


async def test_operator_that_loses_the_lead_while_it_answers_grants_nothing(
    start: Start, client: aiohttp.ClientSession, office: Office
) -> None:
    server = await start()
    answer = office.answer

    async def lose_the_term(report: Any) -> Reply:
        office.leads = False
        return await answer(report)

    office.answer = lose_the_term  # type: ignore[method-assign]

    assert (await post(client, server))[0] == 421


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer bad"}, {"Authorization": "Basic x"}])
async def test_unauthenticated_request_is_refused_with_a_short_reason(
    start: Start, client: aiohttp.ClientSession, office: Office, headers: dict[str, str]
) -> None:
    status, body, _ = await post(client, await start(), headers=headers)

    assert (status, body) == (401, {"error": "the token is not valid"})
    assert office.heard == []


async def test_token_that_cannot_be_checked_now_is_to_be_retried(start: Start, client: aiohttp.ClientSession) -> None:
    status, _, response = await post(client, await start(), headers={"Authorization": "Bearer later"})

    assert status == 503
    assert response.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ({"podUid": "uid-b"}, 403, "podUid: the token is bound to another pod"),
        ({"podUid": ""}, 403, "podUid: the token is bound to another pod"),
        ({"podName": "resize-b"}, 403, "podName: the token is bound to another pod"),
        ({"pool": "other"}, 403, "namespace, pool: this pod is a worker of another pool"),
        ({"namespace": "other"}, 403, "namespace, pool: this pod is a worker of another pool"),
        ({"busy": 2}, 400, "slots, busy: expected busy <= slots <= 1000"),
        ({"state": "sleeping"}, 400, "state: expected one of"),
        ({"sequence": -1}, 400, "sequence: expected a count"),
        ({"protocol": 0}, 400, "protocol: this side speaks"),
        ({"exit": {"code": 2**31}}, 400, "code: expected a count"),
        ({"incarnation": ""}, 400, "incarnation: expected a name"),
    ],
)
async def test_invalid_report_is_refused_with_the_field(
    start: Start, client: aiohttp.ClientSession, office: Office, *, change: dict[str, Any], status: int, reason: str
) -> None:
    answered, body, _ = await post(client, await start(), REPORT.to_wire() | change)

    assert answered == status
    assert body["error"].startswith(reason)
    assert office.heard == []


async def test_pod_unknown_to_the_watch_is_to_retry(
    start: Start, client: aiohttp.ClientSession, office: Office
) -> None:
    office.members.clear()
    status, _, response = await post(client, await start())

    assert status == 503
    assert response.headers["Retry-After"] == "1"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
async def test_body_that_is_no_report_is_refused(start: Start, client: aiohttp.ClientSession, body: bytes) -> None:
    assert (await post(client, await start(), body))[0] == 400


async def test_unknown_fields_are_ignored(start: Start, client: aiohttp.ClientSession) -> None:
    assert (await post(client, await start(), REPORT.to_wire() | {"new": {"in": "version 9"}}))[0] == 200


async def test_body_over_the_limit_is_refused_before_it_is_read(start: Start, client: aiohttp.ClientSession) -> None:
    assert (await post(client, await start(), b"x" * (MAX_REPORT_BYTES + 1)))[0] == 413


async def test_chunked_body_over_the_limit_is_refused(start: Start, client: aiohttp.ClientSession) -> None:
    async def endless() -> Any:
        for _ in range(64):
            yield b"x" * 8192

    server = await start()
    async with client.post(url(server), data=endless(), headers=GOOD, server_hostname=NAME) as response:
        assert response.status == 413


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/report", 405), ("POST", "/metrics", 404)])
async def test_other_paths_and_methods_are_refused(
    start: Start, client: aiohttp.ClientSession, method: str, path: str, status: int
) -> None:
    server = await start()
    async with client.request(method, url(server, path), server_hostname=NAME) as response:
        assert response.status == status


async def test_full_registry_and_internal_error_are_reported(
    start: Start, client: aiohttp.ClientSession, office: Office
) -> None:
    server = await start()
    office.fails = RegistryFullError("the operator remembers 3 workers at most")
    assert (await post(client, server))[:2] == (429, {"error": "the operator remembers 3 workers at most"})

    office.fails = RuntimeError("a bug")
    assert (await post(client, server))[0] == 500


async def test_no_log_line_holds_a_token(
    start: Start, client: aiohttp.ClientSession, office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start()
    with caplog.at_level(logging.DEBUG):
        await post(client, server, headers={"Authorization": "Bearer secret-token"})
        office.fails = RuntimeError("a bug")
        await post(client, server)

    assert "secret-token" not in caplog.text
    assert "Bearer" not in caplog.text


async def test_pod_over_its_rate_limit_is_refused_before_its_body_is_read(
    start: Start, client: aiohttp.ClientSession, office: Office
) -> None:
    server = await start()
    server._bytes = ByteLimit(at_once=2_000, per_second=0.0)
    assert (await post(client, server))[0] == 200
    status, body, response = await post(client, server, b"x" * 2_000)

    assert (status, body) == (429, {"error": "this pod sends more than the operator reads of one pod"})
    assert response.headers["Retry-After"] == "1"
    assert len(office.heard) == 1


async def test_invalid_http_is_counted_and_not_logged(
    start: Start, trust: ssl.SSLContext, office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await connect(await start(), trust)
    with caplog.at_level(logging.DEBUG):
        writer.write(b"POST /v1/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret-token\x00\r\n\r\n")
        answer = await closed(reader)

    assert answer.startswith(b"HTTP/1.0 400 ")
    assert b"secret-token" not in answer
    assert office.statuses == [400]
    assert "secret-token" not in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]
    writer.close()


async def test_silent_connection_is_closed(start: Start, trust: ssl.SSLContext) -> None:
    reader, writer = await connect(await start(request_seconds=0.2), trust)

    assert await closed(reader) == b""
    writer.close()


async def test_slow_head_is_cut_off(start: Start, trust: ssl.SSLContext) -> None:
    reader, writer = await connect(await start(request_seconds=0.3), trust)

    async def trickle() -> None:
        for letter in b"POST /v1/report HTTP/1.1\r\n" * 100:
            writer.write(bytes([letter]))
            await writer.drain()
            await asyncio.sleep(0.02)

    trickling = asyncio.create_task(trickle())
    assert await closed(reader) == b""
    trickling.cancel()
    writer.close()


async def test_slow_body_is_cut_off(start: Start, trust: ssl.SSLContext, office: Office) -> None:
    reader, writer = await connect(await start(request_seconds=0.2), trust)
    writer.write(b"POST /v1/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: 100\r\n\r\n{")
    answer = await closed(reader)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert office.heard == []
    writer.close()


async def test_idle_connection_is_closed(start: Start, trust: ssl.SSLContext) -> None:
    reader, writer = await connect(await start(idle_seconds=0.2), trust)
    body = json.dumps(REPORT.to_wire()).encode()
    head = f"POST /v1/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)

    assert (await closed(reader)).startswith(b"HTTP/1.1 200 ")
    writer.close()


@pytest.mark.parametrize("limit", ["connections_per_source", "connections"])
async def test_connections_of_one_source_and_of_all_are_limited(
    start: Start, trust: ssl.SSLContext, limit: str
) -> None:
    server = await start(**{limit: 2})
    kept = [await connect(server, trust) for _ in range(2)]
    reader, writer = await connect(server, trust)
    assert await closed(reader) == b""
    writer.close()

    kept[0][1].close()
    await kept[0][1].wait_closed()
    await eventually(
        "one connection is left", lambda: server._connections is not None and server._connections.sources.total() <= 1
    )
    reader, writer = await connect(server, trust)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await closed(reader)).startswith(b"HTTP/1.1 404 ")
    for _, each in [*kept, (reader, writer)]:
        each.close()


async def test_missing_handshake_times_out(start: Start) -> None:
    server = await start(handshake_seconds=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)

    assert await closed(reader) == b""
    writer.close()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_old_tls_versions_are_refused(start: Start, trust: ssl.SSLContext) -> None:
    server = await start()
    trust.set_ciphers("ALL:@SECLEVEL=0")
    trust.minimum_version = ssl.TLSVersion.TLSv1
    trust.maximum_version = ssl.TLSVersion.TLSv1_1

    with pytest.raises((ssl.SSLError, ConnectionError)):
        await connect(server, trust)


async def test_client_without_our_ca_fails_its_handshake(start: Start) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(await start(), ssl.create_default_context())


async def test_running_report_is_answered_on_stop(start: Start, client: aiohttp.ClientSession, office: Office) -> None:
    server = await start()
    asked, go_on = asyncio.Event(), asyncio.Event()
    answer = office.answer

    async def slowly(report: Any) -> Reply:
        asked.set()
        await go_on.wait()
        return await answer(report)

    office.answer = slowly  # type: ignore[method-assign]
    posting = asyncio.create_task(post(client, server))
    await asked.wait()
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    go_on.set()

    assert (await posting)[0] == 200
    await stopping
