"""Redis servers as counters: the lengths of all waiting lists of a server, in one exchange."""

import asyncio
from collections.abc import Callable, Sequence

from activity_operator.backlog.counted_errors import unreachable
from activity_operator.backlog.counting import Item, Place
from activity_operator.backlog.observed import Observed, told, unobserved
from activity_operator.backlog.protocol import SourceProblemError
from activity_worker.wire import redis_keys
from activity_worker.wire.redis_connection import RedisClient, open_client
from activity_worker.wire.redis_errors import RedisError, Trouble
from activity_worker.wire.redis_url import RedisUrl, RedisUrlError, parse_redis_url

#: From one round to the next: what that costs is in the README.
INTERVAL_SECONDS = 0.1


def item(queue: str) -> Item:
    """Return what is counted for a queue."""
    return redis_keys.waiting(queue)


class RedisQueues:
    """Counts with LLEN. `observed` is told of every round."""

    def __init__(self, connect: Callable[[RedisUrl], RedisClient] = open_client) -> None:
        self._connect = connect
        self._clients: dict[Place, RedisClient] = {}
        self.observed: Observed = unobserved

    async def read(self, place: Place, items: Sequence[Item]) -> Sequence[int | SourceProblemError]:
        """Return the lists' lengths."""
        client = self._clients.get(place) or self._open(place)
        with told(self.observed, "LLEN"):
            try:
                return [int(length) for length in await client.pipeline([("LLEN", one) for one in items])]
            except RedisError as error:
                if error.trouble is not Trouble.REFUSED:
                    raise problem(error, client.url) from error
        # One key of another type refuses the whole: ask for each.
        return [await self._one(client, one) for one in items]

    async def rest(self, place: Place, seconds: float) -> None:  # noqa: ARG002 - the protocol's signature
        """Wait: Redis announces nothing that would be cheaper than to ask."""
        await asyncio.sleep(seconds)

    async def leave(self, place: Place) -> None:
        """Close the server's connection."""
        if (client := self._clients.pop(place, None)) is not None:
            await client.close()

    async def _one(self, client: RedisClient, one: Item) -> int | SourceProblemError:
        try:
            return int(await client.call("LLEN", one))
        except RedisError as error:
            return problem(error, client.url)

    def _open(self, place: Place) -> RedisClient:
        try:
            url = parse_redis_url(place.url)
        except RedisUrlError as error:
            raise SourceProblemError("SecretUnusable", str(error)) from error
        if url.tls is not None and (url.tls.ca_certs or url.tls.certfile or url.tls.keyfile):
            text = "the Redis URL names files, which the operator does not have: give the CA as ssl_ca_data instead"
            raise SourceProblemError("SecretUnusable", text)
        client = self._clients[place] = self._connect(url)
        return client


def problem(error: RedisError, url: RedisUrl) -> SourceProblemError:
    """Return the error in the conditions' words."""
    words = f"{error.code}: {error.message}"
    server = f"the Redis server {url.shown}"
    match error.trouble:
        case Trouble.DENIED:
            text = f"{server} refuses the operator: correct user, password or ACL (it needs LLEN on the queue's lists)"
            return SourceProblemError("AccessDenied", f"{text} ({words})")
        case Trouble.TLS:
            text = f"no TLS with {server}: check its certificate, and the scheme and the CA in the URL"
            return SourceProblemError("TlsFailed", f"{text} ({words})")
        case Trouble.UNREACHABLE:
            return unreachable(server, words)
    return SourceProblemError("BackendUnreachable", f"the queue on {server} cannot be counted ({words})")
