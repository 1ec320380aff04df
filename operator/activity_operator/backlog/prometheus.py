"""Reads backlogs from Prometheus servers: one query per pool, whose result is the number of waiting tasks."""

import asyncio
import json
import math
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from activity_operator.backlog.call_metrics import CallObserver, ignore_call, observe_count
from activity_operator.backlog.messages import unreachable
from activity_operator.backlog.poll_rounds import Item, SourceEndpoint
from activity_operator.backlog.protocol import SourceProblemError

#: Time-out in seconds for all queries of a round together.
ANSWER_SECONDS = 8.0
#: Concurrent queries per server; a Prometheus server runs 20 at a time by default.
AT_ONCE = 16
#: The largest answer that is read. One number needs a few hundred bytes; a query without sum() may return far more.
MAX_BYTES = 262_144
#: Upper bound of a result: more tasks than any pool has slots, and within the API's integers.
MOST_TASKS = 1_000_000_000
_MAX_WORDS = 200
_QUERY = "spec.scaling.prometheus.query"
_SERVER_URL = "spec.scaling.prometheus.serverUrl"
_TOKEN = re.compile(r"[!-~]*")


class PrometheusReader:
    """Reads counts with instant queries. `observed` is called after each query."""

    def __init__(self) -> None:
        self._sessions: dict[SourceEndpoint, aiohttp.ClientSession] = {}
        self.observed: CallObserver = ignore_call

    async def read(self, endpoint: SourceEndpoint, items: Sequence[Item]) -> Sequence[int | SourceProblemError]:
        """Return each query's result or problem; raises SourceProblemError if the server fails for all queries."""
        session = self._sessions.get(endpoint)
        if session is None:
            session = self._sessions[endpoint] = _session(endpoint)
        gate = asyncio.Semaphore(AT_ONCE)
        until = asyncio.get_running_loop().time() + ANSWER_SECONDS
        different = sorted(set(items))
        answers = await asyncio.gather(*(self._ask(session, endpoint, query, gate, until) for query in different))
        found = dict(zip(different, answers, strict=True))
        problems = [one for one in answers if isinstance(one, SourceProblemError) and one.reason != "QueryFailed"]
        if problems and len(problems) == len(answers):
            # The server as a whole fails: raising keeps the former counts until the failure is certain.
            raise problems[0]
        return [found[query] for query in items]

    async def wait(self, endpoint: SourceEndpoint, seconds: float) -> None:  # noqa: ARG002 - the protocol's signature
        """Wait; Prometheus announces nothing."""
        await asyncio.sleep(seconds)

    async def close(self, endpoint: SourceEndpoint) -> None:
        """Close the server's connections."""
        if (session := self._sessions.pop(endpoint, None)) is not None:
            await session.close()

    async def _ask(
        self,
        session: aiohttp.ClientSession,
        endpoint: SourceEndpoint,
        query: str,
        gate: asyncio.Semaphore,
        until: float,
    ) -> int | SourceProblemError:
        try:
            with observe_count(self.observed, "query"):
                try:
                    async with asyncio.timeout_at(until), gate:
                        return tasks_of(await _answer(session, endpoint, query))
                except TimeoutError as error:
                    raise unreachable(_server(endpoint), f"no answer within {ANSWER_SECONDS:.0f} s") from error
        except SourceProblemError as problem:
            return problem


def _session(endpoint: SourceEndpoint) -> aiohttp.ClientSession:
    if not _TOKEN.fullmatch(endpoint.token):
        text = "what spec.scaling.prometheus.tokenSecretRef names is no token: it has spaces, line breaks or the like"
        raise SourceProblemError("SecretUnusable", text)
    headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
    return aiohttp.ClientSession(headers=headers, cookie_jar=aiohttp.DummyCookieJar())


def _server(endpoint: SourceEndpoint) -> str:
    return f"Prometheus at {endpoint.url}"


async def _answer(session: aiohttp.ClientSession, endpoint: SourceEndpoint, query: str) -> Any:
    """Return the `data` of the answer; raises SourceProblemError, TimeoutError."""
    server = _server(endpoint)
    address = f"{endpoint.url.rstrip('/')}/api/v1/query"
    asked = {"query": query, "timeout": f"{ANSWER_SECONDS:.0f}s"}
    try:
        # A redirect would carry the token elsewhere.
        async with session.get(address, params=asked, allow_redirects=False) as reply:
            _check(reply.status, server)
            body_text = await _body(reply)
    except (ssl.SSLError, aiohttp.ClientSSLError) as error:
        text = f"no TLS with {server}: check its certificate and {_SERVER_URL}"
        raise SourceProblemError("TlsFailed", f"{text} ({type(error).__name__})") from error
    except (aiohttp.ClientError, OSError) as error:
        raise unreachable(server, type(error).__name__) from error
    try:
        body = json.loads(body_text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, Mapping):
        raise _failed(f"{server} did not answer with an object in JSON: is it a Prometheus server?")
    if body.get("status") != "success":
        words = str(body.get("error", ""))[:_MAX_WORDS]
        raise _failed(f"{server} refuses {_QUERY}: {words}")
    return body.get("data")


def _check(status: int, server: str) -> None:
    """Raise SourceProblemError for a status whose body holds no answer to the query."""
    if status in (401, 403):
        text = f"{server} refuses the operator: give or correct spec.scaling.prometheus.tokenSecretRef"
        raise SourceProblemError("AccessDenied", f"{text} (HTTP {status})")
    if 300 <= status < 400:
        raise _failed(f"{server} leads elsewhere, which is not followed: correct {_SERVER_URL} (HTTP {status})")
    if status == 404:
        raise _failed(f"{server} knows no /api/v1/query: correct {_SERVER_URL} (HTTP {status})")
    # With 400 and 422 the body says why the server cannot run the query.
    if status not in (200, 400, 422):
        raise unreachable(server, f"HTTP {status}")


async def _body(reply: aiohttp.ClientResponse) -> bytes:
    parts = bytearray()
    async for part in reply.content.iter_any():
        parts += part
        if len(parts) > MAX_BYTES:
            raise _failed(f"the answer to {_QUERY} is larger than {MAX_BYTES} bytes: make one number of it, with sum()")
    return bytes(parts)


def tasks_of(data: Any) -> int:
    """Return a result that is one number, rounded up. Raises SourceProblemError for every other result."""
    found = data.get("result") if isinstance(data, Mapping) else None
    kind = data.get("resultType") if isinstance(data, Mapping) else None
    if kind == "vector" and isinstance(found, list):
        if not found:
            raise _failed(f"{_QUERY} has no result: write 'or vector(0)' where that means none")
        if len(found) > 1:
            raise _failed(f"{_QUERY} has {len(found)} results: make one of them, with sum() for instance")
        found = found[0].get("value") if isinstance(found[0], Mapping) else None
    if kind not in ("vector", "scalar") or not isinstance(found, list):
        shown = str(kind)[:_MAX_WORDS] if kind else "thing of no type"
        raise _failed(f"{_QUERY} gives no number, but a {shown}")
    try:
        number = float(found[1])
    except (TypeError, ValueError, IndexError):
        raise _failed(f"{_QUERY} gives a {kind} without a number") from None
    if math.isnan(number) or number < 0 or number == math.inf:
        raise _failed(f"{_QUERY} gives {number}, which is no number of tasks")
    return min(math.ceil(number), MOST_TASKS)


def _failed(message: str) -> SourceProblemError:
    return SourceProblemError("QueryFailed", message)
