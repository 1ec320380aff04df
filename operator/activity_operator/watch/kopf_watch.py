"""Runs kopf for its watches only: the handlers pass raw objects to the main loop and return.

kopf has a thread and an event loop of its own, because at its end it cancels every task of its loop that was started
after it. It writes nothing: no annotations, no finalizers, no Events (measured: 0 writes at rest).
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
from typing import Any, cast

import kopf
from kopf._cogs.clients import errors, watching

from activity_operator import backoff
from activity_operator.cluster.kube import Credentials
from activity_operator.cluster.resources import DEPLOYMENTS, PODS, Raw, Resource
from activity_operator.cluster.store import KINDS
from activity_operator.watch.credentials import CredentialsReader
from activity_worker.contract import LABEL_POOL

#: Seconds for which kopf uses one login. A login must expire: otherwise a 401 with unchanged credentials ends kopf.
LOGIN_SECONDS = 600.0
#: Seconds between two beats of kopf's loop.
BEAT_SECONDS = 1.0
#: Seconds in which kopf may stop by itself, and again after it was cancelled.
STOP_SECONDS = 1.0

#: First and longest wait between two tries of a failing call.
RETRY_FIRST_SECONDS = 1.0
RETRY_CAP_SECONDS = 10.0

#: Called on the main loop with each event: the resource, whether the object is deleted, and the object.
OnEvent = Callable[[Resource, bool, Raw], None]

#: The identity for kopf's peering, which is not used.
IDENTITY = "activity-operator"

#: The callback for a watch's relist, called in kopf's thread. A context variable passes it, since kopf has no hook.
ON_RELIST: ContextVar[Callable[[], None]] = ContextVar("ON_RELIST")

log = logging.getLogger(__name__)


def _restarting(watch: Callable[..., Any]) -> Callable[..., AsyncIterator[Any]]:
    """Wrap kopf's watch of one resource so that an error in its stream, or instead of one, ends that stream only.

    An API server sends a 500 in a stream while its storage is unavailable. It may answer a WATCH with 410, and also a
    LIST with an expired continue token. kopf then ends all its watches and may hang for ever, because it waits for a
    watch that missed its cancellation, and no event arrives any more. After the end of a single stream kopf lists and
    watches again. A refused token is passed on, because kopf then logs in again.
    """

    @functools.wraps(watch)
    async def continuous_watch(**given: Any) -> AsyncIterator[Any]:
        async with aclosing(watch(**given)) as events:
            try:
                async for event in events:
                    if event is watching.Bookmark.LISTED and (relisted := ON_RELIST.get(None)) is not None:
                        relisted()
                    yield event
            except errors.APIUnauthorizedError:
                raise
            except (watching.WatchingError, errors.APIClientError) as error:
                log.warning("a watch of %s ended and starts again: %s", given.get("resource"), error)

    return continuous_watch


watching.continuous_watch = _restarting(watching.continuous_watch)


class NoDiffBase(kopf.DiffBaseStorage):
    """Stores no former objects: kopf would copy and compare every object, although no handler uses the difference."""

    def fetch(self, **_: Any) -> None:
        """Return None: there is no former object."""

    def build(self, **_: Any) -> Any:
        """Return an empty essence."""
        return {}

    def store(self, **_: Any) -> None:
        """Do nothing."""


class EndlessBackoff:
    """kopf's waits in seconds between tries of a failing call: without an end, because giving up would end the process.

    If the API server is unavailable for an hour, no replica should restart and lose its open polls.
    """

    def __iter__(self) -> Iterator[float]:
        return backoff.pauses(RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS)


class KopfWatch:
    """kopf in its thread. It calls these on the main loop:

    `relisted()`: a watch started again with a LIST, which does not show deletions in the meantime.
    `ended(why)`: kopf stopped without a request.
    """

    def __init__(
        self, load: Credentials, on_event: OnEvent, relisted: Callable[[], None], ended: Callable[[str], None]
    ) -> None:
        self._credentials = CredentialsReader(load)
        self._on_event = on_event
        self._relisted = relisted
        self._ended = ended
        self._main = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_kopf = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._beat = time.monotonic()

    def start(self) -> None:
        """Start the watches; a second call has no effect."""
        if self._thread.ident is not None:
            return
        self._beat = time.monotonic()
        self._thread.start()

    async def stop(self, timeout: float = 5.0) -> None:
        """Stop the watches; a thread that does not end in time runs until the end of the process."""
        self._stop.set()
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop_kopf.set)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, timeout)

    @property
    def silence(self) -> float:
        """Seconds since the last beat of kopf's loop; 0 before the start."""
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
        ON_RELIST.set(self._listed)
        if self._stop.is_set():
            self._stop_kopf.set()
        operator = asyncio.create_task(
            kopf.operator(
                registry=self._registry(),
                settings=settings(),
                clusterwide=True,
                standalone=True,
                # By default kopf uses the user's name, which the container's user 65532 does not have.
                identity=cast("Any", IDENTITY),
                stop_flag=self._stop_kopf,
            )
        )
        stopping = asyncio.create_task(self._stop_kopf.wait())
        try:
            await asyncio.wait({operator, stopping}, return_when=asyncio.FIRST_COMPLETED)
            # A stop during kopf's start hangs, because kopf waits for connections that it has closed itself.
            await asyncio.wait({operator}, timeout=STOP_SECONDS)
            operator.cancel()
            await asyncio.wait({operator}, timeout=STOP_SECONDS)
            if operator.done() and not operator.cancelled():
                operator.result()
        finally:
            stopping.cancel()
            beat.cancel()
            # Connections close in a callback of the loop, and the loop ends with this coroutine.
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
            self._main.call_soon_threadsafe(self._on_event, resource, event["type"] == "DELETED", dict(event["object"]))

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
    """Return kopf's settings: each wait is bounded, and kopf writes nothing to the cluster."""
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
    # At INFO kopf logs a line for each event of each object.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    return made


def _selector(resource: Resource) -> Any:
    return (
        (resource.group, resource.version, resource.plural) if resource.group else (resource.version, resource.plural)
    )
