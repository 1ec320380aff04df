"""HTTP over plain sockets: a hostile client sends requests that no client library would."""

import json
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

REPORT = "/v1/report"
ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; its status is 0 when the server closed the connection without one."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def error(self) -> str:
        """The operator's error message, "" when the body is not the operator's."""
        with suppress(ValueError, AttributeError):
            return str(json.loads(self.body).get("error", ""))
        return ""


@dataclass(frozen=True, slots=True)
class ReportAddress:
    """The address of the report server, and its CA."""

    port: int
    name: str
    trust: ssl.SSLContext

    def plain(self, source: str = "127.0.0.1") -> socket.socket:
        """Connect without TLS, from an address of this machine."""
        return socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS, source_address=(source, 0))

    def connect(self, source: str = "127.0.0.1") -> "TlsConnection":
        """Connect with TLS."""
        return TlsConnection(self.trust.wrap_socket(self.plain(source), server_hostname=self.name))


class TlsConnection:
    """One TLS connection."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock = sock
        self._left = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def send(self, data: bytes) -> None:
        """Send bytes. A connection that the server has closed is noticed at the next read."""
        with suppress(OSError):
            self.sock.sendall(data)

    def post(self, body: bytes, token: str, path: str = REPORT) -> Answer:
        """Send a report as a client library would."""
        self.send(request(body, token, path))
        return self.answer()

    def answer(self) -> Answer:
        """Read one answer. Raises TimeoutError when neither an answer nor the end of the connection comes."""
        while b"\r\n\r\n" not in self._left:
            if not self._more():
                return Answer(0, self._left)
        head, self._left = self._left.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        while len(self._left) < length and self._more():
            pass
        body, self._left = self._left[:length], self._left[length:]
        return Answer(int(first.split(" ", 2)[1]), body, headers)

    def rest(self) -> bytes:
        """Read until the server closes the connection."""
        while self._more():
            pass
        return self._left

    def _more(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except (ConnectionError, ssl.SSLError):
            return False
        self._left += data
        return bool(data)


def request(body: bytes, token: str, path: str = REPORT, extra: bytes = b"") -> bytes:
    """Return a well-formed request."""
    head = f"POST {path} HTTP/1.1\r\nHost: operator\r\nContent-Length: {len(body)}\r\n"
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    return (head + authorization).encode() + extra + b"\r\n" + body


def say(pod: Any, sequence: int, **changed: Any) -> bytes:
    """Return the body of a report of `pod`."""
    report = {
        "protocol": 1, "namespace": pod.namespace, "pool": pod.pool, "podName": pod.name, "podUid": pod.uid,
        "incarnation": "first", "sequence": sequence, "state": "running", "slots": 1, "busy": 0, **changed,
    }  # fmt: skip
    return json.dumps(report).encode()
