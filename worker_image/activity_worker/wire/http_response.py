"""Reads responses of HTTP/1.1 from bytes, as they arrive. No I/O and no clock.

It reads what servers send to a POST: a body of a stated length, in chunks, or up to the end of the connection. What
could be read in two ways is an error, as RFC 9112 wants it, so that no answer is taken for another one's.
"""

from dataclasses import dataclass
from typing import Final

#: The longest status line with all headers, and the longest body. Answers of AWS have 1 kB and at most some MB.
MAX_HEAD_BYTES: Final = 65_536
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
_MAX_CHUNK_LINE_BYTES: Final = 1_024
_UNTIL_END: Final = -1
_CHUNKED: Final = -2


class MalformedResponseError(ConnectionError):
    """The bytes are no response of HTTP/1.1, or one that is too large."""


@dataclass(slots=True, repr=False)
class HttpResponse:
    """What came back. `headers` by lower-case names, without white space around values. `body` is never shown."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return a header by its lower-case name; an empty text when it is missing."""
        return self.headers.get(name, "")


class ResponseParser:
    """Reads one response after the other; call `feed` with what arrives after each request."""

    def __init__(self) -> None:
        self._rest = b""
        self._response: HttpResponse | None = None
        self._length = 0
        self._body = bytearray()
        self.reusable = True

    @property
    def empty(self) -> bool:
        """Whether nothing has arrived since the last complete response."""
        return self._response is None and not self._rest

    def feed(self, data: bytes) -> HttpResponse | None:
        """Return the response that `data` completes, or None. Raises `MalformedResponseError`.

        `reusable` then says whether the connection may carry another request.
        """
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if self._response is None:
            found = self._read_head(data)
            if found is None:
                return None
            self._response, data = found
        response = self._response
        if self._length >= 0 and not self._body and len(data) == self._length:
            return self._complete(response, data)
        return self._read_chunks(response, data) if self._length == _CHUNKED else self._read_body(response, data)

    def end(self) -> HttpResponse | None:
        """Return the response that the end of the connection completes, or None."""
        self.reusable = False
        if self._response is None or self._length != _UNTIL_END:
            return None
        return self._complete(self._response, bytes(self._body))

    def _read_head(self, data: bytes) -> tuple[HttpResponse, bytes] | None:
        while True:
            end = data.find(b"\r\n\r\n")
            if end > MAX_HEAD_BYTES or (end < 0 and len(data) > MAX_HEAD_BYTES):
                raise MalformedResponseError(f"headers of more than {MAX_HEAD_BYTES} bytes")
            if end < 0:
                self._rest = data
                return None
            response = self._parse_head(data[:end].decode("latin-1"))
            data = data[end + 4 :]
            # An interim response, such as 100 Continue, comes before the response.
            if response.status >= 200:
                return response, data

    def _parse_head(self, head: str) -> HttpResponse:
        first, *lines = head.split("\r\n")
        if first[:7] != "HTTP/1." or first[8:9] != " " or not _is_status(first[9:12]) or first[12:13].strip():
            raise MalformedResponseError("the answer is not HTTP/1.1")
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name[0] in " \t" or name[-1] in " \t":
                raise MalformedResponseError("a header that is not HTTP/1.1")
            key, value = name.lower(), value.strip(" \t")
            if key in headers:
                if key == "content-length" and headers[key] != value:
                    raise MalformedResponseError("two lengths of one body")
                value = f"{headers[key]}, {value}" if key != "content-length" else value
            headers[key] = value
        response = HttpResponse(int(first[9:12]), headers)
        self._length = _length(response)
        kept = headers.get("connection", "").lower()
        keeps = "keep-alive" in kept if first[7] == "0" else "close" not in kept
        self.reusable = keeps and self._length != _UNTIL_END
        return response

    def _read_body(self, response: HttpResponse, data: bytes) -> HttpResponse | None:
        self._add(data)
        if self._length == _UNTIL_END or len(self._body) < self._length:
            return None
        if len(self._body) > self._length:
            # Bytes that nobody asked for: what comes next cannot be told from them.
            self.reusable = False
        return self._complete(response, bytes(self._body[: self._length]))

    def _read_chunks(self, response: HttpResponse, data: bytes) -> HttpResponse | None:
        while True:
            line_end = data.find(b"\r\n")
            if line_end < 0:
                self._keep(data, _MAX_CHUNK_LINE_BYTES)
                return None
            size = _chunk_size(data[:line_end])
            if size == 0:
                return self._read_trailers(response, data, line_end)
            start, end = line_end + 2, line_end + 2 + size
            if len(data) < end + 2:
                self._keep(data, MAX_BODY_BYTES - len(self._body) + _MAX_CHUNK_LINE_BYTES)
                return None
            if data[end : end + 2] != b"\r\n":
                raise MalformedResponseError("a chunk that is not HTTP/1.1")
            self._add(data[start:end])
            data = data[end + 2 :]

    def _read_trailers(self, response: HttpResponse, data: bytes, line_end: int) -> HttpResponse | None:
        """Skip the trailers: the body ends with an empty line."""
        if data[line_end : line_end + 4] == b"\r\n\r\n":
            end = line_end
        elif (end := data.find(b"\r\n\r\n", line_end)) < 0:
            self._keep(data, MAX_HEAD_BYTES)
            return None
        self.reusable = self.reusable and len(data) == end + 4
        return self._complete(response, bytes(self._body))

    def _keep(self, data: bytes, limit: int) -> None:
        if len(data) > limit:
            raise MalformedResponseError("a chunk that is too large")
        self._rest = data

    def _add(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > MAX_BODY_BYTES:
            raise MalformedResponseError(f"a body of more than {MAX_BODY_BYTES} bytes")

    def _complete(self, response: HttpResponse, body: bytes) -> HttpResponse:
        response.body = body
        self._response, self._rest = None, b""
        if self._body:
            self._body = bytearray()
        return response


def _length(response: HttpResponse) -> int:
    """Return the length of the body in bytes, `_CHUNKED` or `_UNTIL_END`."""
    coding, length = response.headers.get("transfer-encoding"), response.headers.get("content-length")
    if response.status in {204, 304}:
        return 0
    if coding is not None:
        if coding.lower() != "chunked" or length is not None:
            raise MalformedResponseError("a body of unclear length")
        return _CHUNKED
    if length is None:
        return _UNTIL_END
    if not (length.isascii() and length.isdigit()) or len(length) > 12 or int(length) > MAX_BODY_BYTES:
        raise MalformedResponseError("a body of unclear length, or one that is too large")
    return int(length)


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip(b" \t")
    if not 0 < len(digits) <= 8 or digits.strip(b"0123456789abcdefABCDEF"):
        raise MalformedResponseError("a chunk that is not HTTP/1.1")
    return int(digits, 16)


def _is_status(text: str) -> bool:
    return len(text) == 3 and text.isascii() and text.isdigit() and text >= "100"
