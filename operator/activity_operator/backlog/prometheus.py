"""Prometheus servers as counters: one query a pool, whose result is how many tasks wait."""

import asyncio
import math
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from activity_operator.backlog.counted_errors import unreachable
from activity_operator.backlog.counting import Item, Place
from activity_operator.backlog.observed import Observed, told, unobserved
from activity_operator.backlog.protocol import SourceProblemError

ANSWER_SECONDS = 8.0
#: Queries to one server at a time.
AT_ONCE = 8
_MAX_WORDS = 200


class Prometheus:
    """Counts with instant queries. `observed` is told of every query."""

    def __init__(self) -> None:
        self._sessions: dict[Place, aiohttp.ClientSession] = {}
        self.observed: Observed = unobserved

    async def read(self, place: Place, items: Sequence[Item]) -> Sequence[int | SourceProblemError]:
        """Return each query's result; a query that fails says so for its pools alone."""
        session = self._sessions.get(place)
        if session is None:
            session = self._sessions[place] = _session(place)
        gate = asyncio.Semaphore(AT_ONCE)
        different = sorted(set(items))
        answers = await asyncio.gather(*(self._ask(session, place, query, gate) for query in different))
        found = dict(zip(different, answers, strict=True))
        return [found[query] for query in items]

    async def rest(self, place: Place, seconds: float) -> None:  # noqa: ARG002 - the protocol's signature
        """Wait."""
        await asyncio.sleep(seconds)

    async def leave(self, place: Place) -> None:
        """Close the server's connections."""
        if (session := self._sessions.pop(place, None)) is not None:
            await session.close()

    async def _ask(
        self, session: aiohttp.ClientSession, place: Place, query: str, gate: asyncio.Semaphore
    ) -> int | SourceProblemError:
        try:
            async with gate:
                with told(self.observed, "query"):
                    return tasks_of(await _answer(session, place, query))
        except SourceProblemError as problem:
            return problem


def _session(place: Place) -> aiohttp.ClientSession:
    headers = {"Authorization": f"Bearer {place.token}"} if place.token else {}
    return aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS))


async def _answer(session: aiohttp.ClientSession, place: Place, query: str) -> Any:
    """Return the `data` of the answer; raises SourceProblemError."""
    server = f"Prometheus at {place.url}"
    try:
        # A redirect would carry the token elsewhere.
        async with session.get(
            f"{place.url.rstrip('/')}/api/v1/query", params={"query": query}, allow_redirects=False
        ) as reply:
            if reply.status in (401, 403):
                text = f"{server} refuses the operator: give or correct spec.scaling.prometheus.tokenSecretRef"
                raise SourceProblemError("AccessDenied", f"{text} (HTTP {reply.status})")
            body = await reply.json(content_type=None) if reply.status in (200, 400, 422) else None
    except (ssl.SSLError, aiohttp.ClientSSLError) as error:
        text = f"no TLS with {server}: check its certificate and spec.scaling.prometheus.serverUrl"
        raise SourceProblemError("TlsFailed", f"{text} ({type(error).__name__})") from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise unreachable(server, type(error).__name__) from error
    except ValueError as error:
        raise _failed(f"{server} did not answer with JSON: is it a Prometheus server?") from error
    if not isinstance(body, Mapping):
        raise unreachable(server, f"HTTP {reply.status}")
    if body.get("status") != "success":
        words = str(body.get("error", ""))[:_MAX_WORDS]
        raise _failed(f"{server} refuses spec.scaling.prometheus.query: {words}")
    return body.get("data")


def tasks_of(data: Any) -> int:
    """Return the number that a result is, rounded up. Raises SourceProblemError for every other result."""
    found = data.get("result") if isinstance(data, Mapping) else None
    kind = data.get("resultType") if isinstance(data, Mapping) else None
    if kind == "vector" and isinstance(found, list):
        if not found:
            raise _failed("spec.scaling.prometheus.query has no result: write 'or vector(0)' where that means none")
        if len(found) > 1:
            text = f"spec.scaling.prometheus.query has {len(found)} results: make one of them, with sum() for instance"
            raise _failed(text)
        found = found[0].get("value") if isinstance(found[0], Mapping) else None
    try:
        number = float(found[1])  # type: ignore[index]
    except (TypeError, ValueError, IndexError):
        raise _failed(f"spec.scaling.prometheus.query gives no number, but a {kind or 'thing of no type'}") from None
    if not math.isfinite(number) or number < 0:
        raise _failed(f"spec.scaling.prometheus.query gives {number}, which is no number of tasks")
    return math.ceil(number)


def _failed(message: str) -> SourceProblemError:
    return SourceProblemError("QueryFailed", message)
