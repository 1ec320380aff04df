"""The periodic LIST of all objects: it finds missed deletions, checks the watches, and queues every pool."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from activity_operator.cluster.interfaces import WatchCheck
from activity_operator.cluster.kube import KubeClient, KubeError
from activity_operator.cluster.ownership import Ownership
from activity_operator.cluster.resources import POOLS, Raw, Raws, Resource
from activity_operator.cluster.store import KINDS, Store
from activity_operator.cluster.transform import trim
from activity_worker.contract import LABEL_POOL

#: Seconds until a failed resync is tried again.
RETRY_SECONDS = 2.0
#: Seconds from a watch's relist to the resync that finds missed deletions; further relists in that time share it.
SOON_SECONDS = 1.0

log = logging.getLogger(__name__)


class Resyncer:
    """Corrects the store by LISTs. `done()` follows each complete resync; `covered` is when the last one began."""

    def __init__(
        self,
        kube: KubeClient,
        store: Store,
        watch_check: WatchCheck,
        ownership: Ownership,
        *,
        every_seconds: float,
        clock: Callable[[], float],
        done: Callable[[], None],
    ) -> None:
        self._kube = kube
        self._store = store
        self._watch_check = watch_check
        self._ownership = ownership
        self._every = every_seconds
        self._clock = clock
        self._done = done
        self._now = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        self.attempted = clock()
        self.covered: float | None = None

    def request(self) -> None:
        """Resync as soon as possible; a new term needs this before its first decision."""
        self._now.set()

    def request_soon(self) -> None:
        """Resync in `SOON_SECONDS`; further requests until then share that resync."""
        if self._soon is None or self._soon.when() <= asyncio.get_running_loop().time():
            self._soon = asyncio.get_running_loop().call_later(SOON_SECONDS, self.request)

    async def run(self) -> None:
        """Resync now, then at each interval and after each request, until cancelled."""
        while True:
            self._now.clear()
            wait = RETRY_SECONDS
            self.attempted = self._clock()
            try:
                await self.resync()
                check = self._watch_check.next_check
                wait = self._every if check is None else min(self._every, check + RETRY_SECONDS)
            except KubeError as error:
                log.warning("the sweep failed, again in %g s: %s", wait, error)
            await self._sleep(wait)

    async def _sleep(self, seconds: float) -> None:
        """Wait, but no longer than until a LIST can prove a watch dead."""
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0:
            check = self._watch_check.next_check
            nap = min(left, self._watch_check.grace_seconds if check is None else check + RETRY_SECONDS)
            try:
                async with asyncio.timeout(nap):
                    await self._now.wait()
            except TimeoutError:
                if self._watch_check.next_check == 0.0:
                    return
            else:
                return

    async def resync(self) -> None:
        """LIST each kind once and correct the store; raises `KubeError`."""
        began = self._clock()
        for resource in KINDS:
            await self._resync_resource(resource)
            await asyncio.sleep(0)
        self._ownership.prune()
        await asyncio.sleep(0)
        self.covered = began
        self._done()

    async def _resync_resource(self, resource: Resource) -> None:
        before = self._store.snapshot(resource)
        # A copy of each unchanged object would be held until the last page, and the garbage collector would visit it.
        found, version = await self._list(resource, partial(self._store.trimmed, resource))
        if before.is_after(version):
            log.warning(
                "the resourceVersions of %s went back from %d to %s, as after a restore of etcd: the LIST is believed",
                resource.plural,
                before.newest,
                version,
            )
            self._watch_check.forget(resource)
            # After a restore, a version that is stored may have been given a second time, to another content.
            found, version = await self._list(resource, partial(trim, resource))
        self._watch_check.listed(resource, found, version)
        # Each step takes tens of milliseconds with thousands of objects; the loop turns in between.
        await asyncio.sleep(0)
        phantoms = self._store.replace(resource, found, before, version)
        if phantoms:
            log.warning("%d %s vanished without the watch telling", phantoms, resource.plural)

    async def _list(self, resource: Resource, keep: Callable[[Raw], Raw]) -> tuple[Raws, str]:
        selector = "" if resource == POOLS else LABEL_POOL
        return await self._kube.list(resource, label_selector=selector, keep=keep)
