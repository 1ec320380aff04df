"""kopf, as the watch and nothing else: its handlers hand raw objects to the main loop and return.

It runs in a thread and an event loop of its own, because at its end it cancels every task that was started after it. It
writes nothing: no annotations, no finalizers, no Events (measured: 0 writes at rest).
"""

import asyncio
import functools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import Any, cast

import kopf
from kopf._cogs.clients import errors, watching

from activity_operator.cluster.kube import Credentials
from activity_operator.cluster.resources import DEPLOYMENTS, PODS, Raw, Resource
from activity_operator.cluster.store import KINDS
from activity_operator.watch.credentials import CredentialsReader
from activity_worker.contract import LABEL_POOL

#: How long kopf uses one login. It must expire: with equal credentials a single 401 ends kopf for good.
LOGIN_SECONDS = 600.0
#: How often kopf's loop proves that it turns.
BEAT_SECONDS = 1.0
#: How long kopf may take to stop by itself, and then to be cancelled.
STOP_SECONDS = 1.0

#: Called on the main loop with each event: the kind, whether the object is gone, and the object.
Take = Callable[[Resource, bool, Raw], None]

#: Who kopf says it is, to nobody: there is no peering here.
IDENTITY = "activity-operator"

#: Who is told, in kopf's thread, that one of its watches listed anew: in its context, for kopf tells it to no handler.
BEGAN_ANEW: ContextVar[Callable[[], None]] = ContextVar("BEGAN_ANEW")

log = logging.getLogger(__name__)


def _forgiving(watch: Callable[..., Any]) -> Callable[..., AsyncIterator[Any]]:
    """Return kopf's watch of one kind such that an error in its stream, or in place of one, ends the stream only.

    An API server says 500 in a stream when its storage is away for a moment, and may answer a WATCH with 410, or a LIST
    whose continue token is too old. kopf ends for good then, with all its watches, and may hang as it ends: it waits
    for a watch that missed its cancellation, for ever, while nobody sees any event. After a stream that ended it lists
    and watches again. A refused token is another matter: kopf logs in again.
    """

    @functools.wraps(watch)
    async def continuous_watch(**given: Any) -> AsyncIterator[Any]:
        async with aclosing(watch(**given)) as events:
            try:
                async for event in events:
                    if event is watching.Bookmark.LISTED and (relisted := BEGAN_ANEW.get(None)) is not None:
                        relisted()
                    yield event
            except errors.APIUnauthorizedError:
                raise
            except (watching.WatchingError, errors.APIClientError) as error:
                log.warning("a watch of %s ended and begins anew: %s", given.get("resource"), error)

    return continuous_watch


watching.continuous_watch = _forgiving(watching.continuous_watch)


class NoDiffBase(kopf.DiffBaseStorage):
    """Keeps nothing: kopf would copy and compare every object, although no handler asks what changed."""

    def fetch(self, **_: Any) -> None:
        """Return that nothing was kept."""

    def build(self, **_: Any) -> Any:
        """Return an empty essence."""
        return {}

    def store(self, **_: Any) -> None:
        """Keep nothing."""


class EndlessBackoff:
    """kopf's waits between tries of a call that fails: without an end, because giving up would end the process.

    An API server that is away for an hour must not cost a restart, and with it open polls, of every replica.
    """

    def __iter__(self) -> Iterator[float]:
        return chain((1.0, 1.0, 2.0, 5.0), repeat(10.0))


class KopfWatch:
    """kopf in its thread. These are called on the main loop.

    `relisted()`: a watch began anew, by a LIST that does not tell what went meanwhile.
    `ended(why)`: kopf stopped without having been asked to.
    """

    def __init__(
        self, load: Credentials, take: Take, relisted: Callable[[], None], ended: Callable[[str], None]
    ) -> None:
        self._credentials = CredentialsReader(load)
        self._take = take
        self._relisted = relisted
        self._ended = ended
        self._main = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_kopf = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._beat = time.monotonic()

    def start(self) -> None:
        """Start watching; done before, it means nothing."""
        if self._thread.ident is not None:
            return
        self._beat = time.monotonic()
        self._thread.start()

    async def stop(self, timeout: float = 5.0) -> None:
        """Stop watching; a thread that does not end in time is left to the end of the process."""
        self._stop.set()
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop_kopf.set)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, timeout)

    @property
    def silence(self) -> float:
        """Seconds since kopf's loop last turned; 0 before it was started."""
        return time.monotonic() - self._beat if self._thread.ident is not None else 0.0

    def _run(self) -> None:
        why = "kopf returned"
        try:
            asyncio.run(self._watch())
        except BaseException as error:  # the thread ends here: whatever it was must end the process, not hide
            log.exception("kopf ended")
            why = f"kopf ended: {type(error).__name__}: {error}"
        if not self._stop.is_set():
            self._main.call_soon_threadsafe(self._ended, why)

    async def _watch(self) -> None:
        beat = asyncio.create_task(self._keep_beating())
        self._loop = asyncio.get_running_loop()
        BEGAN_ANEW.set(self._listed)
        if self._stop.is_set():
            self._stop_kopf.set()
        operator = asyncio.create_task(
            kopf.operator(
                registry=self._registry(),
                settings=settings(),
                clusterwide=True,
                standalone=True,
                # Left out, kopf asks for the user's name, which a container's user 65532 does not have.
                identity=cast("Any", IDENTITY),
                stop_flag=self._stop_kopf,
            )
        )
        stopping = asyncio.create_task(self._stop_kopf.wait())
        try:
            await asyncio.wait({operator, stopping}, return_when=asyncio.FIRST_COMPLETED)
            # Told to stop in the midst of its start, kopf waits for connections that it has closed itself.
            await asyncio.wait({operator}, timeout=STOP_SECONDS)
            operator.cancel()
            await asyncio.wait({operator}, timeout=STOP_SECONDS)
            if operator.done() and not operator.cancelled():
                operator.result()
        finally:
            stopping.cancel()
            beat.cancel()
            # Connections close in a callback of the loop, which ends with this coroutine.
            await asyncio.sleep(0.1)

    async def _keep_beating(self) -> None:
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, id="login")(self._login)
        for resource in KINDS:
            on_event = kopf.on.event(
                resource.group, resource.version, resource.plural, registry=registry, id=resource.plural
            )
            on_event(self._handler(resource))
        return registry

    def _handler(self, resource: Resource) -> Callable[..., Any]:
        async def hand_over(event: Any, **_: Any) -> None:
            if self._stop.is_set():
                return
            self._main.call_soon_threadsafe(self._take, resource, event["type"] == "DELETED", dict(event["object"]))

        return hand_over

    def _listed(self) -> None:
        if not self._stop.is_set():
            self._main.call_soon_threadsafe(self._relisted)

    async def _login(self, **_: Any) -> kopf.ConnectionInfo:
        found = await self._credentials()
        return kopf.ConnectionInfo(
            server=found.server,
            ca_path=found.ca_path,
            token=found.token,
            certificate_path=found.certificate_path,
            private_key_path=found.private_key_path,
            insecure=found.insecure,
            expiration=datetime.now(UTC) + timedelta(seconds=LOGIN_SECONDS),
        )


def settings() -> kopf.OperatorSettings:
    """Return how kopf watches: bounded in every wait, silent towards the cluster."""
    made = kopf.OperatorSettings()
    made.process.ultimate_exiting_timeout = None
    made.posting.enabled = False
    made.scanning.disabled = True
    made.persistence.diffbase_storage = NoDiffBase()
    made.watching.server_timeout = 300
    made.watching.client_timeout = 330
    made.watching.connect_timeout = 10
    made.watching.reconnect_backoff = 1
    made.watching.chunk_size = 500
    for resource in (DEPLOYMENTS, PODS):
        made.watching.label_selectors[_selector(resource)] = LABEL_POOL
    made.queueing.idle_timeout = 0.5
    made.networking.request_timeout = 30
    made.networking.connect_timeout = 5
    made.networking.enforce_retry_after = True
    made.networking.error_backoffs = EndlessBackoff()
    # One line an event and object is no log that anybody reads.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    return made


def _selector(resource: Resource) -> Any:
    return (
        (resource.group, resource.version, resource.plural) if resource.group else (resource.version, resource.plural)
    )
