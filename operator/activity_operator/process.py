"""The operator process: the tasks of its main loop, the begin and the end of a term, and the shutdown.

Order of the shutdown: stop leading and open no more polls, release the Lease, await the open polls, stop the watches.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from activity_operator.clock import clock
from activity_operator.cluster.all_pools import AllPools
from activity_operator.cluster.delay_queue import DelayQueue
from activity_operator.cluster.election import Elector
from activity_operator.cluster.event_publisher import EventPublisher
from activity_operator.cluster.kube import KubeClient
from activity_operator.cluster.leader_label import LeaderLabel
from activity_operator.cluster.reconciler import Reconciler
from activity_operator.cluster.resources import PODS, Raw, Resource
from activity_operator.cluster.resync import Resyncer
from activity_operator.cluster.store import Store
from activity_operator.cluster.workqueue import WorkQueue
from activity_operator.components import Components
from activity_operator.core.tenancy import TenancyPolicy
from activity_operator.health import OperatorHealthServer
from activity_operator.metrics import Metrics
from activity_operator.settings import OperatorSettings
from activity_operator.watch.freshness import Freshness
from activity_operator.watch.kopf_watch import KopfWatch
from activity_operator.watchdog import Watchdog

#: Seconds between two ticks of the main loop for the watchdog, which also check the API server and the policy.
TICK_SECONDS = 1.0
#: Seconds in which a cancelled task must end before it is cancelled again.
CANCEL_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Process:
    """One operator process: runs its parts, begins and ends terms, ends in good order.

    `policy` returns the tenancy policy. `wiring.build_process` makes the parts.
    """

    settings: OperatorSettings
    metrics: Metrics
    policy: Callable[[], TenancyPolicy]
    kube: KubeClient
    queue: WorkQueue
    store: Store
    all_pools: AllPools
    delay_queue: DelayQueue
    freshness: Freshness
    elector: Elector
    resyncer: Resyncer
    label: LeaderLabel
    watcher: KopfWatch
    components: Components
    events: EventPublisher
    reconciler: Reconciler
    health: OperatorHealthServer

    def __post_init__(self) -> None:
        self.watchdog = Watchdog(self.settings.lease_duration_seconds)
        self._ending = asyncio.Event()
        self._failure = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._term_began = float("inf")
        self._term_is_new = False

    async def run(self) -> str:
        """Run until `end` is called or a component fails; return why it failed, "" after an orderly end."""
        try:
            await self.health.start()
            await self.components.start()
            self.watchdog.start()
            self._start()
            await self._ending.wait()
        finally:
            await self._stop()
        return self._failure

    def end(self) -> None:
        """Begin an orderly shutdown, as on SIGTERM; a second call has no effect."""
        self._ending.set()

    def fail(self, why: str) -> None:
        """Shut down because a necessary component has failed; `run` returns `why`."""
        log.error("shutting down: %s", why)
        self._failure = self._failure or why
        self._ending.set()

    def receive_event(self, resource: Resource, gone: bool, raw: Raw) -> None:
        """Process an event of the watch."""
        self.freshness.delivered(resource, raw, gone=gone)
        if gone:
            self.store.remove(resource, raw)
        else:
            self.store.put(resource, raw)

    def _start(self) -> None:
        self._spawn("elector", self.elector.run())
        self._spawn("sweep", self.resyncer.run())
        self._spawn("due", self.delay_queue.run())
        self._spawn("events", self.events.run())
        self._spawn("label", self.label.keep())
        self._spawn("tick", self._tick())
        for number in range(self.settings.reconcile_workers):
            self._spawn(f"reconcile-{number}", self.reconciler.run())

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and not self._ending.is_set():
            error = task.exception()
            self.fail(f"{task.get_name()} ended: {error!r}")

    async def _stop(self) -> None:
        # Release the Lease before the open polls end, which takes up to a minute; otherwise nothing would poll for
        # pools at zero. Tasks of the open polls are recorded here, and the next leader finds the records.
        log.info("shutting down: another process may lead from now on; waiting for open polls to end")
        self._ending.set()
        await self._cancel([task for task in self._tasks if task.get_name() != "tick"])
        # The term ends before any further call; until then this process still opens polls and manages leases.
        self.elector.resign()
        await self.label.drop()
        await self.elector.release()
        await self.components.close_polls(self.settings.stop_seconds)
        await self.components.stop()
        await self._cancel(self._tasks)
        self.watchdog.stop()
        await self.watcher.stop()
        await self.health.stop()
        await self.kube.close()

    async def _cancel(self, tasks: list[asyncio.Task[None]]) -> None:
        """Cancel the tasks until they have ended: a task that has just received an answer may ignore the first time."""
        running = {task for task in tasks if not task.done()}
        while running:
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=CANCEL_SECONDS)

    def leadership_changed(self, leading: bool) -> None:
        """Begin or end a term."""
        self.metrics.leader.set(leading)
        if leading:
            self._term_began, self._term_is_new = clock(), True
            self.reconciler.begin_term()
            self.components.begin_term(self.elector.led_since, self.store.count(PODS))
            self.resyncer.request()
        else:
            self._term_began = float("inf")
            self.reconciler.end_term()
            self.components.end_term()
        self.label.changed()

    def _resynced_this_term(self) -> bool:
        """Return whether a complete resync began in this term, because a standby's watch may lag behind."""
        return self.resyncer.covered is not None and self.resyncer.covered >= self._term_began

    def may_decide(self) -> bool:
        """Whether pools may be decided on: the store is as new as this term, and the components are ready."""
        return self._resynced_this_term() and self.components.ready

    def resynced(self) -> None:
        """Start the watches and queue the pools: every object has been listed.

        The first decisions of a term are due at once, the later ones within seconds: the changes that the LIST made in
        the store are queued already.
        """
        # kopf starts only after a resync, because it ends if the API server is unavailable at its start.
        if not self._ending.is_set():
            self.watcher.start()
        if self._resynced_this_term():
            self.components.store_filled()
        if self._term_is_new and self._resynced_this_term():
            self._term_is_new = False
            self.all_pools.enqueue()
        else:
            self.all_pools.enqueue_spread()

    async def _tick(self) -> None:
        reachable, policy = True, self.policy()
        while True:
            self.watchdog.tick(leading=self.elector.leading)
            # While the API server is unreachable, a poll's task could not be recorded, so a change must stop or
            # restart the polls at once. A change of the policy must also reach pools without events.
            before, (reachable, policy) = (reachable, policy), (self.elector.reachable, self.policy())
            if before[0] != reachable:
                self.all_pools.enqueue()
            elif before[1] != policy:
                self.all_pools.enqueue_spread()
            slept = clock()
            await asyncio.sleep(TICK_SECONDS)
            self.metrics.loop_lag.set(max(clock() - slept - TICK_SECONDS, 0.0))
