"""PURE: reads the head of an HTTP/1.1 request, and writes a whole response. For servers of a few short pages.

What is not HTTP/1.1, is too long or could be read in two ways is refused. Bodies are not read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

#: The longest request line and header line. The pages' names are short; a header may hold somebody's token.
MAX_LINE_BYTES: Final = 1_024
MAX_HEADER_BYTES: Final = 8_190
MAX_HEADERS: Final = 64
TEXT: Final = "text/plain; charset=utf-8"
_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class MalformedRequestError(ValueError):
    """The bytes are no request of HTTP/1.1 that is understood here."""


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """What is asked for. `path` is without the query."""

    method: str
    path: str


@dataclass(frozen=True, slots=True, repr=False)
class PlainResponse:
    """An answer with one of a few statuses; `headers` beside those for type, length and connection."""

    body: bytes
    status: int = 200
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, text: str, status: int = 200) -> "PlainResponse":
        """Return an answer of plain text."""
        return cls(text.encode(), status)

    def encode(self, date: str, *, with_body: bool = True) -> bytes:
        """Return it as bytes, the last ones of its connection; `date` is the header's value."""
        headers = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            "Date": date,
            **self.headers,
            "Connection": "close",
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n{lines}\r\n".encode("latin-1")
        return head + self.body if with_body else head


def parse_request(data: bytes | bytearray) -> PlainRequest | None:
    """Return the request whose head `data` begins with, or None until the head is complete.

    Raises `MalformedRequestError`.
    """
    # A method has capital letters only; TLS and other protocols begin with other bytes.
    if data and not 0x41 <= data[0] <= 0x5A:
        raise MalformedRequestError("a request begins with its method")
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    first, *lines = bytes(data[:end]).decode("latin-1").split("\r\n")
    if len(lines) > MAX_HEADERS:
        raise MalformedRequestError(f"more than {MAX_HEADERS} headers")
    for line in lines:
        _check_header(line)
    return _parse_request_line(first)


def _parse_request_line(line: str) -> PlainRequest:
    if len(line) > MAX_LINE_BYTES:
        raise MalformedRequestError(f"a request line of more than {MAX_LINE_BYTES} bytes")
    words = line.split(" ")
    if len(words) != 3 or words[2] not in {"HTTP/1.1", "HTTP/1.0"}:
        raise MalformedRequestError("a request line has a method, a target and HTTP/1.1")
    method, target, _ = words
    if not (method.isalpha() and method.isascii() and method.isupper()) or not (
        target.isascii() and target.isprintable()
    ):
        raise MalformedRequestError("a method or a target of other letters")
    if target.startswith("/"):
        return PlainRequest(method, target.partition("?")[0])
    try:
        parts = urlsplit(target)
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in {"http", "https"}:
        raise MalformedRequestError("a target is a path or a URL")
    return PlainRequest(method, parts.path or "/")


def _check_header(line: str) -> None:
    if len(line) > MAX_HEADER_BYTES:
        raise MalformedRequestError(f"a header of more than {MAX_HEADER_BYTES} bytes")
    name, colon, value = line.partition(":")
    if not colon or not name or not _TOKEN.issuperset(name) or "\n" in value or "\r" in value or "\0" in value:
        raise MalformedRequestError("a header that is not HTTP/1.1")
    if name.lower() == "transfer-encoding":
        raise MalformedRequestError("a body in chunks")
