"""PostgreSQL task stores as counters: the due instances of all tasks of a store, and its announcements of new ones."""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import asyncpg  # type: ignore[import-untyped]

from activity_operator.backlog.call_metrics import CallObserver, ignore_call, observe_count
from activity_operator.backlog.messages import unreachable
from activity_operator.backlog.poll_rounds import Item, SourceEndpoint
from activity_operator.backlog.protocol import SourceProblemError
from activity_worker.wire.store_connection import connect_to_store
from activity_worker.wire.store_url import StoreUrl, StoreUrlError, address, parse_store_url
from activity_worker.wire.taskstore_due import CHANNEL, DUE, DUE_BY_TASK

#: From one round to the next where nothing is announced: instances also become due by their time.
INTERVAL_SECONDS = 1.0
#: The least time between two rounds, however much is announced.
LEAST_SECONDS = 0.1
#: How many times longer than a round took nothing is asked: a crowd of due instances costs the server no more than a
#: tenth of one of its processes.
REST_FOR_ROUND = 9.0
#: What connecting may take, and a statement.
CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 4.0
#: What the server calls our connections.
APPLICATION = "activity-operator"
_SEPARATOR = "\n"
_MAX_WORDS = 200
_DENIED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InsufficientPrivilegeError)


def item(tasks: Sequence[str]) -> Item:
    """Return what is counted for these tasks, for all of them when there are none."""
    return _SEPARATOR.join(sorted(set(tasks)))


def hosts(url: str) -> Sequence[str]:
    """Return HOST:PORT of every host that the URL leads to. Raises SourceProblemError when it cannot be read."""
    return tuple(address(*host) for host in _parsed(url).hosts)


class _Store:
    """A connection, whether an instance was announced on it, and how long its last round took."""

    def __init__(self, url: StoreUrl, connection: Any) -> None:
        self.url = url
        self.connection = connection
        self.announced = asyncio.Event()
        self.took_seconds = 0.0

    async def listen(self) -> None:
        """Hear of new instances; on a server that cannot announce, the rounds find them."""
        with suppress(asyncpg.FeatureNotSupportedError, asyncpg.ReadOnlySQLTransactionError):
            await self.connection.add_listener(CHANNEL, self._hear)

    def _hear(self, *_: object) -> None:
        self.announced.set()


class TaskStoreReader:
    """Counts with at most two statements a store. `observed` is told of every round; `now` is Unix seconds."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._stores: dict[SourceEndpoint, _Store] = {}
        self.observed: CallObserver = ignore_call

    async def read(self, endpoint: SourceEndpoint, items: Sequence[Item]) -> Sequence[int | SourceProblemError]:
        """Return how many instances are due."""
        named = {task for one in items if one for task in one.split(_SEPARATOR)}
        with observe_count(self.observed, "count"):
            everything, due = await self._due(endpoint, sorted(named), all_of_them="" in items)
        return [sum(due[task] for task in one.split(_SEPARATOR)) if one else everything for one in items]

    async def wait(self, endpoint: SourceEndpoint, seconds: float) -> None:
        """Wait, or until an instance is announced, and in any case in proportion to what the last round took."""
        store = self._stores.get(endpoint)
        took = 0.0 if store is None else store.took_seconds
        least = max(LEAST_SECONDS, REST_FOR_ROUND * took)
        await asyncio.sleep(min(least, max(seconds, REST_FOR_ROUND * took)))
        left = seconds - least
        if left <= 0:
            return
        if store is None:
            await asyncio.sleep(left)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await store.announced.wait()

    async def close(self, endpoint: SourceEndpoint) -> None:
        """Close the store's connection."""
        if (store := self._stores.pop(endpoint, None)) is not None:
            with suppress(Exception):
                await store.connection.close(timeout=CONNECT_SECONDS)

    async def _due(
        self, endpoint: SourceEndpoint, named: Sequence[str], *, all_of_them: bool
    ) -> tuple[int, Counter[str]]:
        loop = asyncio.get_running_loop()
        try:
            store = self._stores.get(endpoint) or await self._open(endpoint)
            # Cleared first: what is announced during the count is counted in the next one.
            store.announced.clear()
            now, began = self._now(), loop.time()
            everything = await store.connection.fetchval(DUE, now) if all_of_them else 0
            rows = await store.connection.fetch(DUE_BY_TASK, now, named) if named else ()
            store.took_seconds = loop.time() - began
            return everything, Counter({row["task_name"]: row["due"] for row in rows})
        except asyncpg.UndefinedTableError:
            # Nobody has made an instance yet: whoever does makes the tables first.
            return 0, Counter()
        except SourceProblemError:
            raise
        except asyncio.CancelledError:
            # What its answer would be is not known any more.
            self._drop(endpoint)
            raise
        except Exception as error:
            self._drop(endpoint)
            raise problem(error, _parsed(endpoint.url)) from error

    def _drop(self, endpoint: SourceEndpoint) -> None:
        """Forget a connection without a word to a server that may not hear it."""
        if (store := self._stores.pop(endpoint, None)) is not None:
            with suppress(Exception):
                store.connection.terminate()

    async def _open(self, endpoint: SourceEndpoint) -> _Store:
        parsed = _parsed(endpoint.url)
        # Not None, for which the driver takes what it finds in our environment and in files: that is not a pool's.
        password = parsed.password or ""
        url = replace(parsed, password=password, connect_seconds=min(parsed.connect_seconds, CONNECT_SECONDS))
        connection = await connect_to_store(url, command_seconds=STATEMENT_SECONDS, name=APPLICATION)
        store = self._stores[endpoint] = _Store(url, connection)
        await store.listen()
        return store


def _parsed(url: str) -> StoreUrl:
    try:
        parsed = parse_store_url(url)
    except StoreUrlError as error:
        raise SourceProblemError("SecretUnusable", str(error)) from error
    if parsed.tls.cert_file is not None or parsed.tls.key_file is not None:
        # Every pool could name those that another one's server knows.
        text = "the operator lends pools no client certificate (sslcert, sslkey): let the user come with a password"
        raise SourceProblemError("SecretUnusable", f"the task store's URL: {text}")
    return parsed


def problem(error: Exception, url: StoreUrl) -> SourceProblemError:
    """Return the error in the conditions' words, without anything of the URL but its hosts and the database."""
    server = f"the task store at {url.shown}"
    words = _words(error)
    if isinstance(error, StoreUrlError):
        text = f"{error}; a file must be in the operator's container, too: give the CA itself as ssl_ca_data instead"
        return SourceProblemError("SecretUnusable", text if url.tls.files else str(error))
    if isinstance(error, _DENIED):
        text = f"{server} refuses the operator: correct user, password or rights (SELECT on activitypool_instances)"
        return SourceProblemError("AccessDenied", f"{text} ({words})")
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        text = f"{server} is not there: create the database, or correct its name in the URL ({words})"
        return SourceProblemError("SecretUnusable", text)
    if isinstance(error, ssl.SSLError) or (isinstance(error, ConnectionError) and "SSL" in str(error)):
        text = f"no TLS with {server}: check its certificate, and sslmode and the CA in the URL"
        return SourceProblemError("TlsFailed", f"{text} ({words})")
    return unreachable(server, words)


def _words(error: Exception) -> str:
    """Return what the server or the certificate's checker said, or just the error's name: others may show the URL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)[:_MAX_WORDS]
    message = error.message if isinstance(error, asyncpg.PostgresError) else None
    return str(message)[:_MAX_WORDS] if message else type(error).__name__
