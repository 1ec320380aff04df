"""Signature Version 4 for requests that all look alike: POST, one path, no query, five known headers.

botocore's signer serves every service and derives the day's key and the canonical form again for each request. Here the
key of the day and the scope are kept and a request costs two SHA-256 and one HMAC. A test compares the two signers,
header for header.

Measured on one of 2 cores (Python 3.11, 106-byte body, session token of 800 characters, best of 7 x 2,000): botocore
48 µs a request, this one 5.5 µs. A no-op task is two calls in a budget of about 370 µs: botocore's signer would
take a quarter and this one takes 3 %: that is why it stays.
"""

import hashlib
import hmac
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"


class Keys(NamedTuple):
    """Frozen credentials. `token` is set for temporary ones."""

    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return "Keys(...)"


class Signer:
    """Signs JSON POSTs to one endpoint for one service and region."""

    def __init__(self, *, service: str, region: str, url: str, content_type: str) -> None:
        parts = urlsplit(url)
        self.host = _host_header(parts.scheme, parts.hostname or "", parts.port)
        self._path = _canonical_path(parts.path)
        self._service = service
        self._region = region
        self._content_type = content_type
        self._day = ""
        self._keys = Keys("", "")
        self._derived = b""
        self._scope = ""
        self._second, self._stamp = -1, ""

    def headers(self, keys: Keys, target: str, body: bytes, at_seconds: float) -> dict[str, str]:
        """Return the headers of a signed request. `at_seconds` is the service's time as a Unix timestamp."""
        stamp = self._stamp_of(int(at_seconds))
        if stamp[:8] != self._day or keys != self._keys:
            self._derive(stamp[:8], keys)
        token_line, token_name = (
            (f"x-amz-security-token:{keys.token}\n", "x-amz-security-token;") if keys.token else ("", "")
        )
        names = f"content-type;host;x-amz-date;{token_name}x-amz-target"
        canonical = (
            f"POST\n{self._path}\n\ncontent-type:{self._content_type}\nhost:{self.host}\nx-amz-date:{stamp}\n"
            f"{token_line}x-amz-target:{target}\n\n{names}\n{hashlib.sha256(body).hexdigest()}"
        )
        to_sign = f"{_ALGORITHM}\n{stamp}\n{self._scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._derived, to_sign.encode(), "sha256").hex()
        headers = {
            "Host": self.host,
            "Content-Type": self._content_type,
            "X-Amz-Target": target,
            "X-Amz-Date": stamp,
            "Authorization": (
                f"{_ALGORITHM} Credential={keys.access_key}/{self._scope}, SignedHeaders={names}, Signature={signature}"
            ),
        }
        if keys.token:
            headers["X-Amz-Security-Token"] = keys.token
        return headers

    def _stamp_of(self, second: int) -> str:
        """Return the time as signatures have it; most requests are of the same second as the one before."""
        if second != self._second:
            self._second = second
            self._stamp = datetime.fromtimestamp(second, UTC).strftime("%Y%m%dT%H%M%SZ")
        return self._stamp

    def _derive(self, day: str, keys: Keys) -> None:
        """Make the key of the day, which also holds for every other request of that day with these credentials."""
        key = f"AWS4{keys.secret_key}".encode()
        for part in (day, self._region, self._service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._derived, self._day, self._keys = key, day, keys
        self._scope = f"{day}/{self._region}/{self._service}/aws4_request"


def _canonical_path(path: str) -> str:
    if path in {"", "/"}:
        return "/"
    from botocore.utils import normalize_url_path  # noqa: PLC0415 - botocore, for the URL of a gateway

    return quote(normalize_url_path(path), safe="/~")


def _host_header(scheme: str, host: str, port: int | None) -> str:
    """Return the Host header: with brackets for IPv6, and the port unless it is the scheme's own."""
    bare = f"[{host}]" if ":" in host else host
    return bare if port in {None, {"http": 80, "https": 443}.get(scheme)} else f"{bare}:{port}"
