"""The operator process: what runs on its main loop, what happens when leadership comes and goes, how it ends.

Order of the end: lead no more and open no polls, release the Lease, await polls that are open, watch no more.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from activity_operator import health
from activity_operator.clock import SlewedClock, clock
from activity_operator.cluster.apply import Applier
from activity_operator.cluster.delay_queue import DelayQueue
from activity_operator.cluster.election import Elector, Timing
from activity_operator.cluster.event_publisher import EventPublisher
from activity_operator.cluster.interfaces import CoreFunctions, PoolSourcesLike, WorkerReports
from activity_operator.cluster.kube import Credentials, KubeClient
from activity_operator.cluster.leader_label import LeaderLabel
from activity_operator.cluster.observer import Observer
from activity_operator.cluster.ownership import Ownership
from activity_operator.cluster.reconciler import Reconciler, ReconcilerDeps
from activity_operator.cluster.resources import PODS, Key, Raw, Resource
from activity_operator.cluster.resync import Resyncer
from activity_operator.cluster.shared_sources import SharedSources
from activity_operator.cluster.status_writer import StatusWriter
from activity_operator.cluster.store import Store
from activity_operator.cluster.workqueue import WorkQueue
from activity_operator.core.decision import EmitEvent
from activity_operator.core.tenancy import TenancyPolicy
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


class ComponentsLike(Protocol):
    """The rooms besides the cluster's: reports of workers, task sources, the core."""

    @property
    def reports(self) -> WorkerReports:
        """What workers say."""
        ...

    @property
    def sources(self) -> PoolSourcesLike:
        """What is known of the task sources."""
        ...

    @property
    def ready(self) -> bool:
        """Whether pools may be decided on: what a former leader left behind has been read."""
        ...

    async def start(self) -> None:
        """Begin to listen for reports."""
        ...

    def begin_term(self, now: float, expected_workers: int) -> None:
        """This process leads from now on; must not block."""
        ...

    def store_filled(self) -> None:
        """The store is as new as this term: who is not in it does not exist. Called after every sweep of a leader."""
        ...

    async def prepare(self, namespace: str) -> None:
        """Put into a pool's namespace what its pods mount. Raises `KubeError`."""
        ...

    def end_term(self) -> None:
        """This process leads no more: open no polls."""
        ...

    async def close_polls(self, timeout_seconds: float) -> None:
        """Open no more polls, and wait for the open ones and for what they brought to be recorded."""
        ...

    async def stop(self) -> None:
        """Listen no more."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterServices:
    """What the other rooms may use of the cluster's; `fail` ends the process, saying why; `now` is Unix seconds."""

    settings: OperatorSettings
    kube: KubeClient
    store: Store
    ownership: Ownership
    elector: Elector
    metrics: Metrics
    enqueue: Callable[[Key], None]
    enqueue_urgent: Callable[[Key], None]
    enqueue_all: Callable[[], None]
    emit_event: Callable[[Key, EmitEvent], None]
    fail: Callable[[str], None]
    policy: Callable[[], TenancyPolicy]
    now: Callable[[], float]


class Process:
    """One operator process. `make_components` makes the other rooms from the backbone; `policy` returns the tenancy
    policy."""

    def __init__(
        self,
        settings: OperatorSettings,
        credentials: Credentials,
        metrics: Metrics,
        make_components: Callable[[ClusterServices], ComponentsLike],
        policy: Callable[[], TenancyPolicy],
        core: CoreFunctions,
    ) -> None:
        self._core = core
        self.settings = settings
        self.metrics = metrics
        self._credentials = credentials
        self._make_components = make_components
        self._policy = policy
        self._ending = asyncio.Event()
        self._failure = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._term_began = float("inf")
        self.watchdog = Watchdog(settings.lease_duration_seconds)

    async def build(self) -> None:
        """Connect the parts; nothing is sent yet. Raises what reading the credentials raises."""
        settings = self.settings
        self.now = SlewedClock(time.time, clock)
        self.kube = await KubeClient.connect(self._credentials, self._observed)
        self.queue = WorkQueue(clock)
        self.metrics.queue_length.set_function(self.queue.__len__)
        self.store = Store(self.queue.add)
        self.delay_queue = DelayQueue(self.queue.add, clock)
        self.freshness = Freshness(settings.watch_grace_seconds, clock)
        self.ownership = Ownership(self.store, self.kube)
        identity = f"{settings.pod_name or 'process'}_{uuid.uuid4().hex[:12]}"
        timing = Timing(
            settings.lease_duration_seconds,
            settings.lease_renew_deadline_seconds,
            settings.lease_retry_seconds,
            min(4.0, settings.lease_renew_deadline_seconds / 2),
        )
        self.elector = Elector(
            self.kube,
            settings.namespace,
            settings.lease_name,
            identity,
            clock=clock,
            wall=self.now,
            on_change=self._leadership_changed,
            timing=timing,
        )
        self.resyncer = Resyncer(
            self.kube,
            self.store,
            self.freshness,
            self.ownership,
            every_seconds=settings.sweep_seconds,
            clock=clock,
            done=self._resynced,
        )
        self.label = LeaderLabel(self.kube, settings.namespace, settings.pod_name, self.elector)
        self.watcher = KopfWatch(self._credentials, self.take, self.resyncer.request_soon, self.fail)
        self._build_reconciler(identity)
        self._build_health()

    def _build_reconciler(self, identity: str) -> None:
        def urgently(key: Key) -> None:
            self.queue.add(key, urgent=True)

        self.components = self._make_components(
            ClusterServices(
                self.settings,
                self.kube,
                self.store,
                self.ownership,
                self.elector,
                self.metrics,
                self.queue.add,
                urgently,
                self._enqueue_all,
                self._emit_event,
                self.fail,
                self._policy,
                self.now,
            )
        )
        observer = Observer(
            self._core.render,
            self.ownership,
            self.components.reports,
            self.components.sources,
            SharedSources(self.queue.add),
            self.elector,
            self._policy,
            self.now,
            self.metrics.lost,
        )
        self.events = EventPublisher(
            self.kube, identity, allowed=lambda: self.elector.leading, clock=clock, wall=self.now
        )
        applier = Applier(
            self.kube, self.store, self.freshness, self.elector, clock=clock, emit_event=self.events.publish
        )
        deps = ReconcilerDeps(
            self.store,
            self.queue,
            self.delay_queue,
            observer,
            applier,
            StatusWriter(self.kube),
            self.events,
            self.freshness,
            self.metrics,
            self.components.prepare,
            self._core,
        )
        self.reconciler = Reconciler(deps, ready=self._may_decide, clock=clock)

    def _build_health(self) -> None:
        live = {
            "watch": lambda: self.freshness.problem,
            "watch-loop": health.watch_loop(lambda: self.watcher.silence),
            "reconcile": health.progress(self.queue.oldest, clock),
            "sweep": health.sweeping(lambda: self.resyncer.attempted, self.settings.sweep_seconds, clock),
        }
        ready = {"sweep": lambda: "" if self.resyncer.covered is not None else "the first sweep is not done"}
        self.health = health.OperatorHealthServer(
            live, ready, self.metrics.render, self.settings.health_host, self.settings.health_port
        )

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

    def _leadership_changed(self, leading: bool) -> None:
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

    def _may_decide(self) -> bool:
        return self._resynced_this_term() and self.components.ready

    def _resynced(self) -> None:
        # Only now: kopf ends for good when the API server is away at its start.
        if not self._ending.is_set():
            self.watcher.start()
        if self._resynced_this_term():
            self.components.store_filled()
        self._enqueue_all()

    def _enqueue_all(self) -> None:
        for key in self.store.known_keys():
            self.queue.add(key)

    def _emit_event(self, key: Key, event: EmitEvent) -> None:
        pool = self.store.pool(key)
        if pool is not None:
            self.events.publish(pool, event)

    async def _tick(self) -> None:
        reachable, policy = True, self._policy()
        while True:
            self.watchdog.tick(leading=self.elector.leading)
            # Polls stop while a task that one brings could not be recorded, and go on afterwards. What the policy
            # allows or forbids must not wait until something happens to a pool.
            before, (reachable, policy) = (reachable, policy), (self.elector.reachable, self._policy())
            if before != (reachable, policy):
                self._enqueue_all()
            slept = clock()
            await asyncio.sleep(TICK_SECONDS)
            self.metrics.loop_lag.set(max(clock() - slept - TICK_SECONDS, 0.0))

    def _observed(self, verb: str, plural: str, code: int) -> None:
        self.metrics.requested("kubernetes", f"{verb.lower()} {plural}", code)
