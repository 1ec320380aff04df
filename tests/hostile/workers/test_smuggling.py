"""Requests that two parsers could read differently: each gets one answer of the operator's own and no log line."""

import json
from collections.abc import Callable

import pytest

from tests.hostile.workers.attacked_cluster import AttackedCluster
from tests.hostile.workers.background import Background
from tests.hostile.workers.oracle import check, neighbours
from tests.hostile.workers.wire import TlsConnection, request, say

Make = Callable[[bytes, bytes], bytes]
HEAD = b"POST /v1/report HTTP/1.1\r\nHost: operator\r\n"


def headed(*lines: bytes, first: bytes = b"POST /v1/report HTTP/1.1", end: bytes = b"\r\n") -> Make:
    """Return a request with these header lines; LENGTH is replaced by the body's length."""

    def make(token: bytes, body: bytes) -> bytes:
        head = (first, b"Host: operator", token, *lines)
        return end.join((*head, b"", b"")).replace(b"LENGTH", str(len(body)).encode()) + body

    return make


def chunked(*chunks: bytes, lines: tuple[bytes, ...] = (b"Transfer-Encoding: chunked",)) -> Make:
    """Return a request with exactly these bytes as its body, which may be well-formed chunks or not."""
    return lambda token, _: b"\r\n".join((HEAD + token, *lines, b"", b"")) + b"".join(chunks)


#: Requests that a server must refuse: two lengths, a length and chunks, malformed chunks, malformed lines.
BAD: dict[str, Make] = {
    "both lengths": headed(b"Content-Length: LENGTH", b"Transfer-Encoding: chunked"),
    "both lengths, turned": headed(b"Transfer-Encoding: chunked", b"Content-Length: LENGTH"),
    "two lengths": headed(b"Content-Length: LENGTH", b"Content-Length: 0"),
    "two lengths in one": headed(b"Content-Length: LENGTH, 0"),
    "length +": headed(b"Content-Length: +LENGTH"),
    "length -": headed(b"Content-Length: -1"),
    "length hexadecimal": headed(b"Content-Length: 0x10"),
    "length endless": headed(b"Content-Length: " + b"9" * 400),
    "length and a space": headed(b"Content-Length : LENGTH"),
    "length underscored": headed(b"Content-Length: 1_0"),
    "chunk of no size": chunked(b"x\r\n\r\n"),
    "chunk overflow": chunked(b"f" * 17 + b"\r\n{}\r\n0\r\n\r\n"),
    "chunk overflow by one": chunked(b"1" + b"0" * 16 + b"\r\n{}\r\n0\r\n\r\n"),
    "chunk negative": chunked(b"-1\r\n{}\r\n0\r\n\r\n"),
    "chunk 0x": chunked(b"0x2\r\n{}\r\n0\r\n\r\n"),
    "chunk too short": chunked(b"1\r\n{}\r\n0\r\n\r\n"),
    "coding unknown": chunked(b"2\r\n{}\r\n0\r\n\r\n", lines=(b"Transfer-Encoding: xchunked",)),
    "coding twice": chunked(b"2\r\n{}\r\n0\r\n\r\n", lines=(b"Transfer-Encoding: chunked",) * 2),
    "coding not last": chunked(b"2\r\n{}\r\n0\r\n\r\n", lines=(b"Transfer-Encoding: chunked, identity",)),
    "coding in two lines": chunked(b"2\r\n{}\r\n0\r\n\r\n", lines=(b"Transfer-Encoding:\r\n chunked",)),
    "folded": headed(b"X-Folded: a\r\n b", b"Content-Length: LENGTH"),
    "folded length": headed(b"X-Folded: a\r\n Content-Length: 5", b"Content-Length: LENGTH"),
    "NUL": headed(b"X-Nul: a\x00b", b"Content-Length: LENGTH"),
    "NUL in the token": lambda token, body: b"\r\n".join((HEAD + token + b"\x00", b"", b"")) + body,
    "token folded": lambda token, body: b"\r\n".join((HEAD + token.replace(b" ", b"\r\n "), b"", b"")) + body,
    "bare CR": headed(b"X-Bare: a\rContent-Length: 5", b"Content-Length: LENGTH"),
    "header without a name": headed(b": x", b"Content-Length: LENGTH"),
    "header without a colon": headed(b"no colon at all", b"Content-Length: LENGTH"),
    "name that is none": headed(b"X Y: z", b"Content-Length: LENGTH"),
    "escape": headed(b"X-\x1b[31m: \x1b[2J", b"Content-Length: LENGTH"),
    "1 MB header": headed(b"X-Long: " + b"x" * 2**20, b"Content-Length: LENGTH"),
    "10,000 headers": headed(*(f"X-{number}: x".encode() for number in range(10_000)), b"Content-Length: LENGTH"),
    "1 MB path": headed(b"Content-Length: LENGTH", first=b"POST /" + b"x" * 2**20 + b" HTTP/1.1"),
    "HTTP/0.9": lambda token, body: b"POST /v1/report\r\n" + body,
    "HTTP/9.9 and words": headed(b"Content-Length: LENGTH", first=b"POST /v1/report HTTP/9.9 more words"),
    "no HTTP at all": lambda token, body: b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1 not HTTP\r\n\r\n" + body,
    "HTTP/2": lambda token, body: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 64,
    "method that is none": headed(b"Content-Length: LENGTH", first=b"PO\x00ST /v1/report HTTP/1.1"),
    "method of 1 MB": headed(b"Content-Length: LENGTH", first=b"P" * 2**20 + b" /v1/report HTTP/1.1"),
}
#: Valid HTTP that is no report: (request, the allowed statuses of the answer).
ODD: dict[str, tuple[Make, set[int]]] = {
    "absolute URI": (headed(b"Content-Length: LENGTH", first=b"POST http://x/v1/report HTTP/1.1"), {200, 400, 404}),
    "authority": (headed(b"Content-Length: LENGTH", first=b"POST x:1 HTTP/1.1"), {400, 404}),
    "dots": (headed(b"Content-Length: LENGTH", first=b"POST /metrics/../v1/report HTTP/1.1"), {200, 404}),
    "another path": (headed(b"Content-Length: LENGTH", first=b"POST /metrics HTTP/1.1"), {404}),
    "two slashes": (headed(b"Content-Length: LENGTH", first=b"POST //v1/report HTTP/1.1"), {404}),
    "GET": (headed(b"Content-Length: LENGTH", first=b"GET /v1/report HTTP/1.1"), {405}),
    "GET that says POST": (
        headed(b"X-HTTP-Method-Override: POST", b"Content-Length: LENGTH", first=b"GET /v1/report HTTP/1.1"), {405},
    ),
    "TRACE": (headed(b"Content-Length: LENGTH", first=b"TRACE /v1/report HTTP/1.1"), {400, 405}),
    "CONNECT": (headed(b"Content-Length: LENGTH", first=b"CONNECT /v1/report HTTP/1.1"), {400, 404, 405}),
    "post": (headed(b"Content-Length: LENGTH", first=b"post /v1/report HTTP/1.1"), {400, 405}),
    "two hosts": (headed(b"Host: other", b"Content-Length: LENGTH"), {200, 400}),
    "without a length": (headed(), {400, 411}),
    "compressed": (headed(b"Content-Encoding: gzip", b"Content-Length: LENGTH"), {200, 400, 415}),
    "upgrade": (headed(b"Connection: upgrade", b"Upgrade: websocket", b"Content-Length: LENGTH"), {200, 400}),
    "upgrade to h2c": (headed(b"Connection: upgrade", b"Upgrade: h2c", b"Content-Length: LENGTH"), {200, 400}),
    "chunk size of many noughts": (chunked(b"0" * 100_000 + b"2\r\n{}\r\n0\r\n\r\n"), {400}),
    "bare LF": (headed(b"Content-Length: LENGTH", end=b"\n"), {200, 400}),
}  # fmt: skip


def authorization(here: AttackedCluster) -> bytes:
    return f"Authorization: Bearer {here.attacker.token}".encode()


def body(here: AttackedCluster) -> bytes:
    return say(here.attacker, next(here.sequence))


def judge_last(here: AttackedCluster, line: TlsConnection, *, token: str) -> None:
    """Raise AssertionError unless the connection now ends, with at most one answer, in the operator's own form."""
    answer = line.answer()
    assert answer.status in {0, 400}, answer
    if answer.status:
        assert answer.headers["server"] == "activitypool"
        assert json.loads(answer.body) == {"error": "the request is not HTTP/1.1 that is understood here"}
    assert line.rest() == b""
    assert token.encode() not in answer.body


def test_invalid_http_is_refused_once_and_ends_the_connection(here: AttackedCluster, background: Background) -> None:
    before = background.do(neighbours(here))
    for name, make in BAD.items():
        with here.address.connect() as line:
            # The bytes that follow must not be read as a request.
            line.send(make(authorization(here), body(here)) + request(body(here), here.attacker.token))
            try:
                judge_last(here, line, token=here.attacker.token)
            except (AssertionError, TimeoutError) as error:
                raise AssertionError(f"{name}: {error}") from error
    background.do(check(here, before))


@pytest.mark.parametrize("name", ODD)
def test_odd_but_valid_http_is_answered_once(here: AttackedCluster, name: str) -> None:
    make, statuses = ODD[name]
    with here.address.connect() as line:
        line.send(make(authorization(here), body(here)))
        answer = line.answer()

    assert answer.status in statuses, answer
    assert answer.headers["server"] == "activitypool"


def test_pipelined_requests_are_answered_one_by_one(here: AttackedCluster) -> None:
    bodies = [body(here) for _ in range(5)]
    with here.address.connect() as line:
        line.send(b"".join(request(each, here.attacker.token) for each in bodies))
        assert [line.answer().status for _ in bodies] == [200] * 5


def test_request_after_a_refused_one_is_not_read(here: AttackedCluster) -> None:
    with here.address.connect() as line:
        line.send(request(body(here), "") + request(body(here), here.attacker.token))
        assert line.answer().status == 401
        assert line.rest() == b""
