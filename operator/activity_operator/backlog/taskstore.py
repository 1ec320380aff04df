"""Reads backlogs from PostgreSQL task stores: counts a store's due instances and listens for new ones."""

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
from activity_worker.wire.store_limits import AnswerLimit
from activity_worker.wire.store_url import StoreUrl, StoreUrlError, address, parse_store_url
from activity_worker.wire.taskstore_due import CHANNEL, DUE, DUE_BY_TASK

#: Seconds between two rounds without an announcement; an instance whose time has come is not announced.
INTERVAL_SECONDS = 1.0
#: Minimum seconds between two rounds, also with announcements.
LEAST_SECONDS = 0.1
#: The rest after a round, as a multiple of the round's duration. Counting therefore takes at most a tenth of one server
#: process, even with very many due instances.
REST_FOR_ROUND = 9.0
#: Time-outs in seconds for connecting and for a statement.
CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 4.0
#: The most bytes of a server's answers to one round. A name has at most 255 characters: 1,000 names take 1 MB.
ANSWER_BYTES = 1024 * 1024
#: The `application_name` of the operator's connections.
APPLICATION = "activity-operator"
_SEPARATOR = "\n"
_MAX_WORDS = 200
_DENIED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InsufficientPrivilegeError)


def item(tasks: Sequence[str]) -> Item:
    """Return the item for these tasks; an empty sequence means all tasks of the store."""
    return _SEPARATOR.join(sorted(set(tasks)))


def hosts(url: str) -> Sequence[str]:
    """Return HOST:PORT of every host in the URL; raises SourceProblemError if the operator cannot use the URL."""
    return tuple(address(*host) for host in _parsed(url).hosts)


class _Store:
    """A connection with its limit, the event that an announcement on it sets, and the duration of its last round."""

    def __init__(self, connection: Any, limit: AnswerLimit) -> None:
        self.connection = connection
        self.limit = limit
        self.announced = asyncio.Event()
        self.took_seconds = 0.0

    async def listen(self) -> None:
        """Listen for new instances; on a server without LISTEN only the rounds find them."""
        with suppress(asyncpg.FeatureNotSupportedError, asyncpg.ReadOnlySQLTransactionError):
            await self.connection.add_listener(CHANNEL, self._hear)

    def _hear(self, *_: object) -> None:
        self.announced.set()


class TaskStoreReader:
    """Counts with at most two statements per store. `observed` is called after each round; `now` is Unix seconds."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._stores: dict[SourceEndpoint, _Store] = {}
        self.observed: CallObserver = ignore_call

    async def read(self, endpoint: SourceEndpoint, items: Sequence[Item]) -> Sequence[int | SourceProblemError]:
        """Return the number of due instances for each item."""
        named = {task for one in items if one for task in one.split(_SEPARATOR)}
        with observe_count(self.observed, "count"):
            everything, due = await self._due(endpoint, sorted(named), all_of_them="" in items)
        return [sum(due[task] for task in one.split(_SEPARATOR)) if one else everything for one in items]

    async def wait(self, endpoint: SourceEndpoint, seconds: float) -> None:
        """Wait `seconds`, or until an announcement; in any case rest in proportion to the last round's duration."""
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
        limit = AnswerLimit(ANSWER_BYTES)
        try:
            store = self._stores.get(endpoint) or await self._open(endpoint, limit)
            limit = store.limit
            limit.begin()
            # Clear the event first, so that an announcement during this count causes another one.
            store.announced.clear()
            now, began = self._now(), loop.time()
            everything = await store.connection.fetchval(DUE, now) if all_of_them else 0
            rows = await store.connection.fetch(DUE_BY_TASK, now, named) if named else ()
            store.took_seconds = loop.time() - began
            return everything, Counter({row["task_name"]: row["due"] for row in rows})
        except asyncpg.UndefinedTableError:
            # The tables do not exist, so neither does any instance: the first writer creates the tables.
            return 0, Counter()
        except SourceProblemError:
            raise
        except asyncio.CancelledError:
            # The answer of the cancelled statement is still outstanding on this connection.
            self._drop(endpoint)
            raise
        except Exception as error:
            self._drop(endpoint)
            url = _parsed(endpoint.url)
            raise (answer_too_large(limit, url) if limit.exceeded else problem(error, url)) from error

    def _drop(self, endpoint: SourceEndpoint) -> None:
        """Drop the connection without a farewell to the server, which may be unreachable."""
        if (store := self._stores.pop(endpoint, None)) is not None:
            with suppress(Exception):
                store.connection.terminate()

    async def _open(self, endpoint: SourceEndpoint, limit: AnswerLimit) -> _Store:
        parsed = _parsed(endpoint.url)
        # With None the driver would use a password of the operator's own environment or files.
        password = parsed.password or ""
        url = replace(parsed, password=password, connect_seconds=min(parsed.connect_seconds, CONNECT_SECONDS))
        connection = await connect_to_store(url, command_seconds=STATEMENT_SECONDS, name=APPLICATION, limit=limit)
        store = self._stores[endpoint] = _Store(connection, limit)
        await store.listen()
        return store


def _parsed(url: str) -> StoreUrl:
    try:
        parsed = parse_store_url(url)
    except StoreUrlError as error:
        raise SourceProblemError("SecretUnusable", str(error)) from error
    if parsed.tls.cert_file is not None or parsed.tls.key_file is not None:
        # Otherwise a pool could name the certificate files of another pool.
        text = "the operator lends pools no client certificate (sslcert, sslkey): let the user come with a password"
        raise SourceProblemError("SecretUnusable", f"the task store's URL: {text}")
    return parsed


def answer_too_large(limit: AnswerLimit, url: StoreUrl) -> SourceProblemError:
    """Return the source problem for a server that sends more than the operator reads."""
    text = f"the task store at {url.shown} sends more than {limit.most_bytes} bytes for a count: correct the URL"
    return SourceProblemError("QueryFailed", text)


def problem(error: Exception, url: StoreUrl) -> SourceProblemError:
    """Return the error as a source problem; of the URL its message shows only the hosts and the database."""
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
    """Return the message of the server or the certificate check; else the error's name, without a text with the URL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)[:_MAX_WORDS]
    message = error.message if isinstance(error, asyncpg.PostgresError) else None
    return str(message)[:_MAX_WORDS] if message else type(error).__name__
