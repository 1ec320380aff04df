"""Responses of HTTP/1.1, read from bytes: whole, in pieces of every size, and those that are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activity_worker.wire import http_response
from activity_worker.wire.http_response import HttpResponse, MalformedResponseError, ResponseParser

SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Amzn-RequestId:  one \r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;note=1\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
TRAILERS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\nC: d\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: a\r\n\r\n" + SIZED
NO_BODY = b"HTTP/1.1 204 No Content\r\n\r\n"


def read(*pieces: bytes) -> tuple[HttpResponse | None, ResponseParser]:
    parser = ResponseParser()
    found = None
    for piece in pieces:
        assert found is None, "a response was complete before its last byte"
        found = parser.feed(piece)
    return found, parser


@pytest.mark.parametrize("data", [SIZED, CHUNKED, TRAILERS, INTERIM], ids=["sized", "chunked", "trailers", "interim"])
def test_response_is_read_whole_and_byte_by_byte(data: bytes) -> None:
    for pieces in ([data], [data[index : index + 1] for index in range(len(data))]):
        found, parser = read(*pieces)

        assert found is not None
        assert (found.status, found.body) == (200, b"hello")
        assert parser.reusable
        assert parser.empty


@given(st.binary(max_size=300), st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_body_comes_back_however_it_was_cut(body: bytes, cuts: list[int]) -> None:
    sized = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    chunks, rest = b"", body
    for cut in cuts:
        part, rest = rest[:cut], rest[cut:]
        chunks += b"%x\r\n%b\r\n" % (len(part), part) if part else b""
    chunks += b"%x\r\n%b\r\n" % (len(rest), rest) if rest else b""
    for data in (sized, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"):
        pieces, position = [], 0
        for cut in cuts:
            pieces.append(data[position : position + cut])
            position += cut
        pieces.append(data[position:])
        found, _ = read(*[piece for piece in pieces if piece])
        assert found is not None
        assert found.body == body


def test_headers_have_lower_case_names_and_no_white_space_around_values() -> None:
    found, _ = read(SIZED)

    assert found is not None
    assert found.header("x-amzn-requestid") == "one"
    assert found.header("missing") == ""


def test_one_connection_carries_one_response_after_the_other() -> None:
    parser = ResponseParser()

    bodies = [answer.body for data in (SIZED, CHUNKED, NO_BODY, SIZED) if (answer := parser.feed(data)) is not None]

    assert bodies == [b"hello", b"hello", b"", b"hello"]


@pytest.mark.parametrize(
    ("data", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP", False),
        (NO_BODY, True),
    ],
)
def test_connection_is_used_again_only_if_the_server_keeps_it(data: bytes, reusable: bool) -> None:
    found, parser = read(data)

    assert found is not None
    assert parser.reusable is reusable


def test_body_without_length_ends_with_the_connection() -> None:
    found, parser = read(b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo")

    assert found is None
    ended = parser.end()
    assert ended is not None
    assert ended.body == b"hello"
    assert not parser.reusable


@pytest.mark.parametrize("data", [SIZED[:-1], CHUNKED[:-1], SIZED[:20]], ids=["sized", "chunked", "head"])
def test_end_of_the_connection_completes_no_other_response(data: bytes) -> None:
    found, parser = read(data)

    assert found is None
    assert parser.end() is None


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: line\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"a" * http_response.MAX_HEAD_BYTES + b"\r\n\r\n",
        b"A" * (http_response.MAX_HEAD_BYTES + 1),
    ],
)
def test_what_can_be_read_in_two_ways_or_is_too_large_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedResponseError):
        ResponseParser().feed(data)


def test_body_in_chunks_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_response, "MAX_BODY_BYTES", 10)
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n12345678\r\n")

    with pytest.raises(MalformedResponseError):
        parser.feed(b"8\r\n12345678\r\n")
