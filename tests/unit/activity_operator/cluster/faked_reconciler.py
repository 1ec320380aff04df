"""A reconciler whose surroundings are faked: what it reads is set by a test, and what it does is in `log`."""

from types import SimpleNamespace
from typing import Any, cast

from activity_operator.cluster.apply import Applier
from activity_operator.cluster.delay_queue import DelayQueue
from activity_operator.cluster.interfaces import CoreFunctions
from activity_operator.cluster.kube import ApiError
from activity_operator.cluster.observer import ObserverResult
from activity_operator.cluster.parsed_pool import ParsedPool
from activity_operator.cluster.pod_changes import PodChanges
from activity_operator.cluster.reconciler import Reconciler, ReconcilerDeps
from activity_operator.cluster.resources import POOLS, Key
from activity_operator.cluster.shared_sources import SharedSources
from activity_operator.cluster.status_budget import StatusBudget
from activity_operator.cluster.status_updates import StatusUpdates
from activity_operator.cluster.status_writer import StatusWriter
from activity_operator.cluster.store import Store
from activity_operator.cluster.workqueue import WorkQueue
from activity_operator.core.decision import (
    Decision,
    Limit,
    ScalingMemory,
    SentinelOrder,
    Size,
)
from activity_operator.core.observation import DeploymentFacts, Observation, PoolFacts
from activity_operator.watch.freshness import Freshness
from activity_worker.contract import Directive

KEY = ("ns", "p")
ARN = "arn:aws:states:us-east-1:123456789012:activity:a"
LOOPS = 8
SPEC = {"activityArn": ARN, "handlerImage": "i", "maxWorkers": 5}


class FakedReconciler:
    """A reconciler with fake dependencies; the next writes raise the errors in `trouble`."""

    def __init__(self, rate: float = 50.0) -> None:
        self.rate = rate
        self.now = 0.0
        self.trouble: list[Exception] = []
        self.leading = True
        self.reachable = True
        self.swept = True
        self.log: list[Any] = []
        self.results: list[str] = []
        self.memories: list[ScalingMemory] = []
        self.replicas: dict[str, int] = {}
        self.ring = False
        self.changes = PodChanges()
        self.urgent_part: tuple[object, ...] = ("Ready",)
        self.built = 0
        self.written: list[Any] = []
        self.conditions: list[Any] = []
        self.seen: list[Any] = []
        self.queue = WorkQueue(lambda: self.now)
        self.store = Store(self.queue.add)
        self.due = DelayQueue(self.queue.add, lambda: self.now)
        self.live = self.pool()
        self.store.put(POOLS, self.live)
        self.reconciler = Reconciler(self.rooms(), ready=lambda: self.swept, clock=lambda: self.now, jitter=lambda: 1.0)

    def pool(self, version: int = 1, **spec: Any) -> dict[str, Any]:
        meta = {"namespace": "ns", "name": "p", "uid": "u1", "resourceVersion": str(version), "generation": 1}
        return {"metadata": meta, "spec": {**SPEC, **spec}, "status": {"observedGeneration": 1}}

    def rooms(self) -> ReconcilerDeps:
        reports = SimpleNamespace(
            set_directives=lambda *args: self.log.append(("directives", args[2])),
            end_stand_by=lambda *key: self.log.append(("end stand-by", key)),
            events=lambda *_: (),
            forget=lambda uid: self.log.append(("forget", uid)),
            forget_pool=lambda *_: None,
            add_event=lambda key, name, message, **more: self.log.append(("event", name, message, more["pod"])),
        )
        signals = SimpleNamespace(
            order=lambda key, order, spec, uid: self.log.append(("order", order)),
            stop_polls=lambda key: self.log.append("stop_polls"),
            withdraw=lambda key, deleted: self.log.append(("withdraw", deleted)),
        )
        gauges = SimpleNamespace(
            reconciled=lambda result, seconds: self.results.append(result),
            observed=lambda *_: None,
            forget=lambda key: self.log.append(("metrics", key)),
            forget_all=lambda: self.log.append("all metrics"),
            status_written=lambda: None,
            lost=lambda key, reason: self.log.append(("lost", reason)),
            scaled=lambda key, by, reason, seconds: self.log.append(("scaled", by)),
        )
        applier = Applier(
            cast("Any", self),
            self.store,
            Freshness(60, lambda: self.now),
            cast("Any", self),
            clock=lambda: self.now,
            emit_event=lambda *_: None,
        )
        return ReconcilerDeps(
            self.store,
            self.queue,
            self.due,
            cast("Any", SimpleNamespace(observe=self.look)),
            cast("Any", reports),
            cast("Any", signals),
            SharedSources(self.queue.add),
            cast("Any", self),
            cast("Any", SimpleNamespace(apply=self.apply, refresh=applier.refresh)),
            StatusUpdates(
                self.store,
                cast("Any", reports),
                StatusWriter(cast("Any", self)),
                StatusBudget(self.rate, LOOPS, lambda: self.now),
                applier.refresh,
                Freshness(60, lambda: self.now),
                cast("Any", gauges),
                cast("Any", self),
                CoreFunctions(self.decide, lambda *_: {}, self.build, lambda *_: self.part()),
                lambda: self.now,
                lambda: 1.8e9,
            ),
            cast("Any", SimpleNamespace(forget=lambda uid: None, publish=lambda *event: self.log.append(event))),
            cast("Any", gauges),
            self.prepare,
            CoreFunctions(self.decide, lambda *_: {}, self.status),
        )

    async def prepare(self, namespace: str) -> None:
        self.log.append(("prepare", namespace))

    async def look(self, key: Key, pool: Any, spec: Any, state: Any) -> ObserverResult:
        found = tuple(DeploymentFacts(name, "d", "1", name, 1, count) for name, count in self.replicas.items())
        observation = Observation(now=1.8e9, pool=PoolFacts("ns", "p", "u1", 1), deployments=found)
        return ObserverResult(observation, self.changes, ParsedPool(pool["spec"], spec, 1, (), ()))

    def decide(self, spec: Any, observation: Observation, memory: ScalingMemory) -> Decision:
        self.memories.append(memory)
        learnt = ScalingMemory(quiet_since=float(len(self.memories)))
        directives = {"w": Directive.DRAIN}
        order = SentinelOrder(2, 1, counts=True, watched=True)
        return Decision(Size(1, Limit.DEMAND, ""), learnt, directives=directives, sentinel=order, look_again_in=30.0)

    def status(self, *given: Any) -> dict[str, Any]:
        if self.ring:
            return {"observedGeneration": 1, "decisions": [*given[3].get("decisions", ()), len(self.memories)]}
        return {"observedGeneration": 1}

    def part(self) -> tuple[object, ...]:
        """Return the urgent part of the status; with `ring` each decision is another one."""
        return (*self.urgent_part, len(self.memories) if self.ring else 0)

    def build(self, *given: Any) -> dict[str, Any]:
        """Return the status by the method that a test may have replaced."""
        self.built += 1
        return self.status(*given)

    async def apply_status(self, *given: Any) -> dict[str, Any]:
        if given[3]["metadata"]["resourceVersion"] != self.live["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        self.written.append(given[3]["status"].get("decisions"))
        self.conditions = given[3]["status"].get("conditions", [])
        self.live = {**self.pool(version=len(self.written) + 1), "status": given[3]["status"]}
        return self.live

    async def get(self, *_: Any) -> dict[str, Any]:
        return self.live

    async def apply(self, work: Any, actions: Any) -> None:
        self.log.append("apply")
        if self.trouble:
            raise self.trouble.pop(0)

    async def look_after(self) -> float | None:
        """Reconcile the pool once; return the seconds until it is due again."""
        await self.reconciler.reconcile(KEY)
        return self.due.pop_due()
