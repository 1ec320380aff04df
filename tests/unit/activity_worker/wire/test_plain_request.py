"""Requests of HTTP/1.1 are read by their heads; what is unclear or too long is refused."""

import pytest

from activity_worker.wire.plain_request import (
    MalformedRequestError,
    PlainRequest,
    PlainResponse,
    parse_request,
)

PROBE = b"GET /livez?verbose HTTP/1.1\r\nHost: 10.0.0.1:8081\r\nUser-Agent: kube-probe/1.34\r\n\r\n"


@pytest.mark.parametrize("end", range(len(PROBE)))
def test_head_is_incomplete_up_to_its_empty_line(end: int) -> None:
    assert parse_request(PROBE[:end]) is None


@pytest.mark.parametrize(
    ("head", "method", "path"),
    [
        (PROBE, "GET", "/livez"),
        (PROBE + b"more", "GET", "/livez"),
        (b"HEAD /metrics HTTP/1.0\r\n\r\n", "HEAD", "/metrics"),
        (b"GET http://worker:8081/tasks?x HTTP/1.1\r\n\r\n", "GET", "/tasks"),
        (b"GET http://worker:8081 HTTP/1.1\r\n\r\n", "GET", "/"),
        (b"GET //tasks HTTP/1.1\r\n\r\n", "GET", "//tasks"),
    ],
)
def test_method_and_path_are_read(head: bytes, method: str, path: str) -> None:
    assert parse_request(head) == PlainRequest(method, path)


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01",
        b"get /livez HTTP/1.1\r\n\r\n",
        b"GET /livez\r\n\r\n",
        b"GET  /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/2.0\r\n\r\n",
        b"GET livez HTTP/1.1\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"GET ftp://worker/livez HTTP/1.1\r\n\r\n",
        b"GET /li\x00vez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n: no name\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nName : x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nX: y\r\n folded\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nX: y\nZ: x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /" + b"x" * 1_024 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * 8_190 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 65 + b"\r\n",
    ],
)
def test_unclear_or_long_head_is_refused(head: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        parse_request(head)


def test_response_has_its_length_and_ends_the_connection() -> None:
    page = PlainResponse.text("stuck\n", 503)

    assert page.encode("Mon, 23 Nov 2026 00:00:00 GMT") == (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 6\r\n"
        b"Date: Mon, 23 Nov 2026 00:00:00 GMT\r\nConnection: close\r\n\r\nstuck\n"
    )
    assert page.encode("now", with_body=False).endswith(b"Connection: close\r\n\r\n")
