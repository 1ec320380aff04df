"""PostgreSQL task stores as counters: the due instances of all tasks of a store, and its announcements of new ones."""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]

from activity_operator.backlog.counted_errors import unreachable
from activity_operator.backlog.counting import Item, Place
from activity_operator.backlog.observed import Observed, told, unobserved
from activity_operator.backlog.protocol import SourceProblemError
from activity_worker.wire.taskstore_due import CHANNEL, DUE_BY_TASK

#: From one round to the next where nothing is announced: instances also become due by their time.
INTERVAL_SECONDS = 1.0
#: The least time between two rounds, however much is announced.
LEAST_SECONDS = 0.1
CONNECT_SECONDS = 5.0
_SEPARATOR = "\n"
_SHAPE = "postgresql://USER:PASSWORD@HOST:PORT/NAME"
_DENIED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InsufficientPrivilegeError)


def item(tasks: Sequence[str]) -> Item:
    """Return what is counted for these tasks, for all of them when there are none."""
    return _SEPARATOR.join(sorted(tasks))


class _Store:
    """A connection, and whether an instance was announced on it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.announced = asyncio.Event()

    async def listen(self) -> None:
        await self.connection.add_listener(CHANNEL, self._hear)

    def _hear(self, *_: object) -> None:
        self.announced.set()


class TaskStores:
    """Counts with one statement a store. `observed` is told of every round; `now` is Unix seconds."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._stores: dict[Place, _Store] = {}
        self.observed: Observed = unobserved

    async def read(self, place: Place, items: Sequence[Item]) -> Sequence[int | SourceProblemError]:
        """Return how many instances are due."""
        with told(self.observed, "count"):
            due = await self._due(place)
        everything = sum(due.values())
        return [sum(due[task] for task in one.split(_SEPARATOR)) if one else everything for one in items]

    async def rest(self, place: Place, seconds: float) -> None:
        """Wait, or until an instance is announced."""
        await asyncio.sleep(min(LEAST_SECONDS, seconds))
        store = self._stores.get(place)
        left = seconds - LEAST_SECONDS
        if store is None or left <= 0:
            await asyncio.sleep(max(left, 0.0))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await store.announced.wait()

    async def leave(self, place: Place) -> None:
        """Close the store's connection."""
        if (store := self._stores.pop(place, None)) is not None:
            with suppress(Exception):
                await store.connection.close(timeout=CONNECT_SECONDS)

    async def _due(self, place: Place) -> Counter[str]:
        try:
            store = self._stores.get(place) or await self._open(place)
            # Cleared first: what is announced during the count is counted in the next one.
            store.announced.clear()
            rows = await store.connection.fetch(DUE_BY_TASK, self._now())
            return Counter({row["task_name"]: row["due"] for row in rows})
        except asyncpg.UndefinedTableError:
            # Nobody has made an instance yet: whoever does makes the tables first.
            return Counter()
        except SourceProblemError:
            raise
        except Exception as error:
            await self.leave(place)
            raise problem(error, place.url) from error

    async def _open(self, place: Place) -> _Store:
        if not place.url.startswith(("postgresql://", "postgres://")):
            text = f"a pool's task store is a PostgreSQL database: the URL must look like {_SHAPE}"
            raise SourceProblemError("SecretUnusable", text)
        try:
            connection = await asyncpg.connect(place.url, timeout=CONNECT_SECONDS, command_timeout=CONNECT_SECONDS)
        except (ValueError, asyncpg.InterfaceError) as error:
            # Its words may quote the URL.
            text = f"the task store's URL cannot be read; it must look like {_SHAPE}"
            raise SourceProblemError("SecretUnusable", text) from error
        store = self._stores[place] = _Store(connection)
        await store.listen()
        return store


def problem(error: Exception, url: str) -> SourceProblemError:
    """Return the error in the conditions' words, without anything of the URL but the host and the database."""
    server = f"the task store at {shown(url)}"
    words = type(error).__name__
    if isinstance(error, _DENIED):
        text = f"{server} refuses the operator: correct user, password or rights (SELECT on activitypool_instances)"
        return SourceProblemError("AccessDenied", f"{text} ({words})")
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return SourceProblemError("SecretUnusable", f"the database at {shown(url)} does not exist: correct its name")
    if isinstance(error, ssl.SSLError):
        text = f"no TLS with {server}: check its certificate, and sslmode and sslrootcert in the URL"
        return SourceProblemError("TlsFailed", f"{text} ({words})")
    return unreachable(server, words)


def shown(url: str) -> str:
    """Return host, port and database of a URL, for people."""
    with suppress(ValueError):
        parts = urlsplit(url)
        return f"{parts.hostname or ''}:{parts.port or 5432}{parts.path}"
    return "its URL"
