"""Reads backlogs from Redis servers: the lengths of all waiting lists of a server in one exchange."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from activity_operator.backlog.call_metrics import CallObserver, ignore_call, observe_count
from activity_operator.backlog.messages import unreachable
from activity_operator.backlog.poll_rounds import Item, SourceEndpoint
from activity_operator.backlog.protocol import SourceProblemError
from activity_operator.core.tenancy import named_host_refusal
from activity_worker.wire import redis_keys
from activity_worker.wire.redis_connection import RedisClient, open_client
from activity_worker.wire.redis_errors import ADDRESS_REFUSED, RedisError, RedisErrorKind
from activity_worker.wire.redis_limits import RedisLimits
from activity_worker.wire.redis_url import RedisUrl, RedisUrlError, parse_redis_url

#: Most bytes of a server's answers to one round: a count takes about 10, a cluster's map of 1,000 ranges 300 KB.
ANSWER_BYTES: Final = 1024 * 1024
_NEEDS = "correct user, password or ACL (it needs LLEN on the queue's lists)"


#: Separates the lists of an item; names of queues have no spaces.
_AND = " "


def item(queue: str, *, with_running: bool = False) -> Item:
    """Return the item for a queue: its waiting jobs, and its running jobs if `with_running`."""
    lists = (redis_keys.waiting(queue), redis_keys.processing(queue))
    return _AND.join(lists if with_running else lists[:1])


def running_item(queue: str) -> Item:
    """Return the item for a queue's running jobs."""
    return redis_keys.processing(queue)


def hosts(url: str) -> Sequence[str]:
    """Return HOST:PORT of every host in the URL; raises SourceProblemError if the operator cannot use the URL."""
    return tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in usable(url).hosts)


def usable(text: str) -> RedisUrl:
    """Return the parsed URL; raises SourceProblemError if the operator cannot use it."""
    try:
        url = parse_redis_url(text)
    except RedisUrlError as error:
        raise SourceProblemError("SecretUnusable", str(error)) from error
    if url.tls is not None and (url.tls.ca_certs or url.tls.certfile or url.tls.keyfile):
        words = "the Redis URL names files, which the operator does not have: give the CA as ssl_ca_data instead"
        raise SourceProblemError("SecretUnusable", words)
    return url


class RedisReader:
    """Reads counts with LLEN. `observed` is called after each round."""

    def __init__(self, connect: Callable[[RedisUrl, RedisLimits], RedisClient] = open_client) -> None:
        self._connect = connect
        #: One client for all endpoints that differ in the interval of their rounds only.
        self._clients: dict[SourceEndpoint, RedisClient] = {}
        self._users: dict[SourceEndpoint, set[SourceEndpoint]] = {}
        self.observed: CallObserver = ignore_call

    async def read(self, endpoint: SourceEndpoint, items: Sequence[Item]) -> Sequence[int | SourceProblemError]:
        """Return the sum of each item's list lengths; a refused key is a problem of its own item only."""
        client = self._client(endpoint)
        lists = [key for one in items for key in one.split(_AND)]
        with observe_count(self.observed, "LLEN"):
            try:
                lengths = await client.read_all([("LLEN", key) for key in lists])
            except RedisError as error:
                raise problem(error, client.url) from error
        found = zip(lists, lengths, strict=True)
        return [_sum([next(found) for _ in one.split(_AND)], client.url) for one in items]

    async def wait(self, endpoint: SourceEndpoint, seconds: float) -> None:  # noqa: ARG002 - the protocol's signature
        """Wait; an announcement by Redis would cost more than the next LLEN."""
        await asyncio.sleep(seconds)

    async def close(self, endpoint: SourceEndpoint) -> None:
        """Close the server's connection, unless another endpoint uses it."""
        server = replace(endpoint, interval_seconds=0.0)
        users = self._users.get(server, set())
        users.discard(endpoint)
        if not users and (client := self._clients.pop(server, None)) is not None:
            del self._users[server]
            await client.close()

    def _client(self, endpoint: SourceEndpoint) -> RedisClient:
        server = replace(endpoint, interval_seconds=0.0)
        client = self._clients.get(server)
        if client is None:
            limits = RedisLimits(ANSWER_BYTES, partial(named_host_refusal, globs=endpoint.source_hosts))
            client = self._clients[server] = self._connect(usable(endpoint.url), limits)
        self._users.setdefault(server, set()).add(endpoint)
        return client


def _sum(found: Sequence[tuple[str, object]], url: RedisUrl) -> int | SourceProblemError:
    total = 0
    for key, length in found:
        if isinstance(length, RedisError):
            return refused(length, key, url)
        if not isinstance(length, int) or length < 0:
            words = f"the Redis server {url.shown} does not answer LLEN with a length: correct the URL"
            return SourceProblemError("QueryFailed", words)
        total += length
    return total


def problem(error: RedisError, url: RedisUrl) -> SourceProblemError:
    """Return the source problem for a server that cannot be used."""
    words = f"{error.code}: {error.message}"
    server = f"the Redis server {url.shown}"
    if error.code == ADDRESS_REFUSED:
        return SourceProblemError("TenancyDenied", f"{server}: {words}")
    match error.kind:
        case RedisErrorKind.DENIED:
            return SourceProblemError("AccessDenied", f"{server} refuses the operator: {_NEEDS} ({words})")
        case RedisErrorKind.TLS:
            text = f"no TLS with {server}: check its certificate, and the scheme and the CA in the URL"
            return SourceProblemError("TlsFailed", f"{text} ({words})")
        case RedisErrorKind.UNREACHABLE:
            return unreachable(server, words)
        case RedisErrorKind.MISSING:
            return SourceProblemError("SecretUnusable", f"{server} cannot be used: correct the URL ({words})")
    return SourceProblemError("QueryFailed", f"{server} does not count for the operator: correct the URL ({words})")


def refused(error: RedisError, one: str, url: RedisUrl) -> SourceProblemError:
    """Return the source problem for one list that cannot be counted, on a server that answers."""
    words = f"{error.code}: {error.message}"
    if error.kind is RedisErrorKind.DENIED:
        text = f"the Redis server {url.shown} refuses the operator LLEN on {one}: {_NEEDS} ({words})"
        return SourceProblemError("AccessDenied", text)
    text = f"the list {one} on the Redis server {url.shown} cannot be counted"
    return SourceProblemError("QueryFailed", f"{text}: correct the queue's name, or remove the key ({words})")
