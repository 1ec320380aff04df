"""HTTP calls through a proxy, by aiohttp's client, which knows proxies of both kinds and their credentials."""

import asyncio
import ssl
from urllib.request import getproxies

import aiohttp

from activity_worker.wire.errors import EndpointUnreachableError
from activity_worker.wire.grace_timeout import GraceTimeout
from activity_worker.wire.http_response import HttpResponse
from activity_worker.wire.transport import CONNECT_TIMEOUT_SECONDS


class ProxiedTransport:
    """POSTs to one URL through the proxy that the environment names for its scheme. Make it on the loop that uses it.

    `tls` is the context for an HTTPS URL; None for HTTP.
    """

    def __init__(self, url: str, *, tls: ssl.SSLContext | None, user_agent: str) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls or True),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent, "Accept-Encoding": "identity"},
            auto_decompress=False,
            # Not `trust_env`: it looks for a proxy and a netrc in a thread at every request, which trebled its cost.
            proxy=getproxies()[url.partition(":")[0]],
        )

    async def post(self, headers: dict[str, str], body: bytes, *, timeout_seconds: float) -> HttpResponse:
        """Send one request and read its answer, as `Transport.post`. Raises EndpointUnreachableError."""
        # No `total`, which on waking from a standstill gives up answers that have arrived.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=min(timeout_seconds, CONNECT_TIMEOUT_SECONDS))
        try:
            with GraceTimeout(timeout_seconds):
                async with self._session.post(
                    self._url, data=body, headers=headers, timeout=timeout, allow_redirects=False
                ) as reply:
                    found = {name.lower(): value for name, value in reply.headers.items()}
                    return HttpResponse(reply.status, found, await reply.read())
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
        await self._session.close()
        # TLS connections close one turn of the loop after `close`.
        await asyncio.sleep(0)

    @property
    def _place(self) -> str:
        return "/".join(self._url.split("/", 3)[:3])
