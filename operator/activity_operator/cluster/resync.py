"""The periodic LIST of everything: it finds deletes that no watch told, proves watches alive, wakes every pool."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from activity_operator.cluster.interfaces import WatchCheck
from activity_operator.cluster.kube import KubeClient, KubeError
from activity_operator.cluster.ownership import Ownership
from activity_operator.cluster.resources import POOLS, Resource
from activity_operator.cluster.store import KINDS, Store
from activity_operator.cluster.transform import trim
from activity_worker.contract import LABEL_POOL

#: Seconds until a LIST that failed is tried again, while the store is not to be trusted.
RETRY_SECONDS = 2.0
#: Seconds from a watch that began anew to the sweep that finds what it missed: one for all that it tells again.
SOON_SECONDS = 1.0

log = logging.getLogger(__name__)


class Resyncer:
    """Keeps the store honest. `done()` is called after each complete sweep; `covered` is when the last began."""

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
        """Sweep as soon as possible, as a new term must before its first decision."""
        self._now.set()

    def request_soon(self) -> None:
        """Sweep in a moment, once for everybody who asks meanwhile."""
        if self._soon is None or self._soon.when() <= asyncio.get_running_loop().time():
            self._soon = asyncio.get_running_loop().call_later(SOON_SECONDS, self.request)

    async def run(self) -> None:
        """Sweep now, then every interval and whenever asked, until cancelled."""
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
        """Wait; a debt of the watches that arises meanwhile shortens the wait."""
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
        """LIST every kind once and correct the store by it; raises `KubeError`."""
        began = self._clock()
        for resource in KINDS:
            await self._resync_resource(resource)
        self._ownership.prune()
        self.covered = began
        self._done()

    async def _resync_resource(self, resource: Resource) -> None:
        before = self._store.snapshot(resource)
        selector = "" if resource == POOLS else LABEL_POOL
        found, version = await self._kube.list(resource, label_selector=selector, keep=partial(trim, resource))
        self._watch_check.listed(resource, found)
        phantoms = self._store.replace(resource, found, before, version)
        if phantoms:
            log.warning("%d %s vanished without the watch telling", phantoms, resource.plural)
