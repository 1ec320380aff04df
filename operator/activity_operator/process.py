"""The operator process: what runs on its main loop, what happens when leadership comes and goes, how it ends.

Order of the end: lead no more and open no polls, release the Lease, await polls that are open, watch no more.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from activity_operator.clock import clock
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

#: How often the main loop proves that it turns, and looks whether the API server answers.
TICK_SECONDS = 1.0
#: How long a task may take to end before it is told again.
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
    enqueue_all: Callable[[], None]
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

    async def run(self) -> str:
        """Run until `end` is called or a part fails; returns why it failed, "" after an orderly end."""
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
        """End in good order, as on SIGTERM; said again it means nothing new."""
        self._ending.set()

    def fail(self, why: str) -> None:
        """End because a part that must run does not."""
        log.error("ending: %s", why)
        self._failure = self._failure or why
        self._ending.set()

    def take(self, resource: Resource, gone: bool, raw: Raw) -> None:
        """Take in an event of the watch."""
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
        # The Lease goes first: pools at zero would be blind for the minute that an open poll may last. What those polls
        # still bring is recorded here, and found there by the next leader.
        log.info("ending: another process may lead from now on; open polls are awaited")
        self._ending.set()
        await self._cancel([task for task in self._tasks if task.get_name() != "tick"])
        # No call before this: until the term has ended here, polls are opened and leases are swept as a leader's.
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
        """Cancel until they have ended: one that just took an answer may miss the first word."""
        running = {task for task in tasks if not task.done()}
        while running:
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=CANCEL_SECONDS)

    def leadership_changed(self, leading: bool) -> None:
        """Begin or end a term."""
        self.metrics.leader.set(leading)
        if leading:
            self._term_began = clock()
            self.reconciler.begin_term()
            self.components.begin_term(self.elector.led_since, self.store.count(PODS))
            self.resyncer.request()
        else:
            self._term_began = float("inf")
            self.reconciler.end_term()
            self.components.end_term()
        self.label.changed()

    def _resynced_this_term(self) -> bool:
        """Whether the store is as new as this term: a standby's watch may lag behind what the former leader did."""
        return self.resyncer.covered is not None and self.resyncer.covered >= self._term_began

    def may_decide(self) -> bool:
        """Whether pools may be decided on: the store is as new as this term, and the components are ready."""
        return self._resynced_this_term() and self.components.ready

    def resynced(self) -> None:
        """Every object has been listed: watch from now on, and look at every pool."""
        # Only now: kopf ends for good when the API server is away at its start.
        if not self._ending.is_set():
            self.watcher.start()
        if self._resynced_this_term():
            self.components.store_filled()
        self.enqueue_all()

    async def _tick(self) -> None:
        reachable, policy = True, self.policy()
        while True:
            self.watchdog.tick(leading=self.elector.leading)
            # Polls stop while a task that one brings could not be recorded, and go on afterwards. What the policy
            # allows or forbids must not wait until something happens to a pool.
            before, (reachable, policy) = (reachable, policy), (self.elector.reachable, self.policy())
            if before != (reachable, policy):
                self.enqueue_all()
            slept = clock()
            await asyncio.sleep(TICK_SECONDS)
            self.metrics.loop_lag.set(max(clock() - slept - TICK_SECONDS, 0.0))
