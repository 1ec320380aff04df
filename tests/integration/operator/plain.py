"""Simple stand-ins for the operator's other components: sizes that a test sets, no reports, no polls."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from activity_operator.api.spec import PoolSpec
from activity_operator.api.status import EventRecord
from activity_operator.cluster.interfaces import PoolEventLike
from activity_operator.cluster.resources import Key
from activity_operator.components import ClusterServices
from activity_operator.core import scale_plan
from activity_operator.core.decision import (
    Action,
    ApplyRevision,
    Decision,
    Limit,
    ScalingMemory,
    SentinelOrder,
    Size,
)
from activity_operator.core.manifests import GENERATION
from activity_operator.core.observation import Observation, PoolFacts, ReportPathFacts, SourceFacts, WorkerFacts
from activity_operator.core.task_window import TaskWindow
from activity_worker.contract import LABEL_POOL, LABEL_REVISION, Directive


class PlainCore:
    """Decides one Deployment for each pool, of the size in `sizes`; pools of other namespaces are left alone."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.sizes: dict[str, int] = {}
        self.template: dict[str, Any] = {}
        self.seen: list[Observation] = []
        self.backlog = 0
        self.sentinel = SentinelOrder()

    def render(self, spec: PoolSpec, pool: PoolFacts, replicas: int) -> Mapping[str, Any]:
        labels = {LABEL_POOL: pool.name, LABEL_REVISION: "r1"}
        owner = {
            "apiVersion": "activitypools.dev/v1alpha1",
            "kind": "ActivityPool",
            "name": pool.name,
            "uid": pool.uid,
            "controller": True,
        }
        container = {
            "name": "worker",
            "image": spec.handler_image,
            "imagePullPolicy": "IfNotPresent",
            "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"memory": "1Gi"}},
            "env": [{"name": "A", "value": "1"}, {"name": "EMPTY", "value": ""}],
            **self.template,
        }
        return {
            "metadata": {
                "name": f"{pool.name}-r1",
                "namespace": pool.namespace,
                "labels": labels,
                "annotations": {GENERATION: str(pool.generation)},
                "ownerReferences": [owner],
            },
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
                },
            },
        }

    def decide(self, spec: PoolSpec, observation: Observation, memory: ScalingMemory) -> Decision:
        if observation.pool.namespace == self.namespace:
            self.seen.append(observation)
        wanted = self.sizes.get(observation.pool.name, 0)
        actions: tuple[Action, ...] = ()
        if observation.pool.namespace == self.namespace and not observation.pool.deleting:
            actions = self._actions(spec, observation, wanted)
        return Decision(Size(wanted, Limit.DEMAND, "as the test says"), memory, actions, sentinel=self.sentinel)

    def _actions(self, spec: PoolSpec, observation: Observation, wanted: int) -> tuple[Action, ...]:
        current = observation.deployments[0] if observation.deployments else None
        if current is None or current.drifted or current.rendered_generation != observation.pool.generation:
            replicas = 0 if current is None else current.replicas
            manifest = self.render(spec, observation.pool, replicas)
            return (ApplyRevision(f"{observation.pool.name}-r1", "r1", replicas, manifest),)
        if current.replicas != wanted:
            return scale_plan.replicas_write(current, wanted)
        return ()

    def status(
        self,
        spec: PoolSpec,
        observation: Observation,
        decision: Decision,
        previous: Mapping[str, Any] | None,
        events: Sequence[EventRecord],
    ) -> Mapping[str, Any]:
        if observation.pool.namespace != self.namespace:
            return previous or {}
        ready = "False" if observation.rejected else "True"
        condition = {
            "type": "Ready",
            "status": ready,
            "reason": observation.rejected_reason or "PoolReady",
            "message": observation.rejected[:200],
            "observedGeneration": observation.pool.generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        return {
            "observedGeneration": observation.pool.generation,
            "conditions": [condition],
            "desiredReplicas": decision.size.desired,
            "backlog": self.backlog,
        }


class PlainReports:
    """Reports without any worker."""

    authentication_problem = ""

    def workers(self, namespace: str, pool: str) -> tuple[WorkerFacts, ...]:
        return ()

    def set_directives(self, namespace: str, pool: str, directives: Mapping[str, Directive]) -> None:
        """Do nothing."""

    def end_stand_by(self, namespace: str, pool: str) -> None:
        """Do nothing."""

    def tasks(self, namespace: str, pool: str, now: float) -> TaskWindow:
        return ()

    def report_path(self, namespace: str, pool: str, now: float, deadline_seconds: float) -> ReportPathFacts:
        return ReportPathFacts()

    def forget(self, pod_uid: str) -> None:
        """Do nothing."""

    def events(self, namespace: str, pool: str) -> Sequence[PoolEventLike]:
        return ()

    def add_event(
        self, key: Key, name: str, message: str, *, at: float, pod: str = "", exit_code: int | None = None
    ) -> None:
        """Do nothing."""

    def forget_pool(self, namespace: str, pool: str) -> None:
        """Do nothing."""


class PlainSignals:
    """No polls; the orders and withdrawals are recorded for the test."""

    def __init__(self) -> None:
        self.orders: dict[Key, SentinelOrder] = {}
        self.withdrawn: list[tuple[Key, bool]] = []

    def order(self, key: Key, order: SentinelOrder, spec: PoolSpec, pool_uid: str) -> None:
        self.orders[key] = order

    def facts(self, key: Key) -> SourceFacts:
        return SourceFacts()

    def stop_polls(self, key: Key) -> None:
        self.orders.pop(key, None)

    def withdraw(self, key: Key, *, deleted: bool) -> None:
        self.withdrawn.append((key, deleted))


class PlainOutside:
    """All stand-ins together."""

    def __init__(self, services: ClusterServices) -> None:
        self.reports = PlainReports()
        self.sources = PlainSignals()
        self.backbone = services
        self.terms: list[bool] = []
        self.ready = True
        self.no_poll_open = asyncio.Event()
        self.no_poll_open.set()

    async def start(self) -> None:
        """Do nothing."""

    def begin_term(self, now: float, expected_workers: int) -> None:
        self.terms.append(True)

    async def prepare(self, namespace: str) -> None:
        """Do nothing."""

    def store_filled(self) -> None:
        """Do nothing."""

    def end_term(self) -> None:
        self.terms.append(False)

    async def close_polls(self, timeout_seconds: float) -> None:
        """Wait as long as the test sets for open polls."""
        await self.no_poll_open.wait()

    async def stop(self) -> None:
        """Do nothing."""
