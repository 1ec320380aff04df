"""Pools with one worker each under a whole operator in this process. Its API server is a fake that counts writes."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from activity_operator.api.conditions import Reason
from activity_operator.cluster.all_pools import AllPools
from activity_operator.cluster.delay_queue import DelayQueue
from activity_operator.cluster.event_publisher import EventPublisher
from activity_operator.cluster.kube import ApiError
from activity_operator.cluster.ownership import Ownership
from activity_operator.cluster.reconciler import Reconciler
from activity_operator.cluster.resources import DEPLOYMENTS, PODS, POOLS, Key, Raw, Resource
from activity_operator.cluster.store import Store
from activity_operator.cluster.workqueue import WorkQueue
from activity_operator.components import ClusterServices, Components
from activity_operator.core.tenancy import TenancyPolicy
from activity_operator.metrics import Metrics
from activity_operator.reports.authentication import EXTRA_POD_NAME, EXTRA_POD_UID, ReviewUnavailableError
from activity_operator.settings import OperatorSettings
from activity_operator.watch.freshness import Freshness
from activity_operator.wiring import _ClusterParts, _reconciler_deps, build_components, core_functions
from activity_worker.contract import LABEL_POOL, TOKEN_AUDIENCE
from tests.unit.activity_operator.reports.builders import report
from tests.unit.activity_operator.virtual_time import elapsed, wall

ARN = "arn:aws:states:us-east-1:123456789012:activity:"


def _stamp() -> str:
    return datetime.fromtimestamp(wall() - 60.0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Api:
    """The API server: it keeps the last version of what is applied, and answers TokenReviews unless `down`."""

    def __init__(self) -> None:
        self.statuses: list[tuple[float, Key]] = []
        self.events: list[Raw] = []
        self.version = 1000
        self.down = False

    async def apply(self, resource: Resource, namespace: str, name: str, body: Raw) -> Raw:
        self.version += 1
        owners = [dict(owner) for owner in body["metadata"]["ownerReferences"]]
        meta = {**body["metadata"], "uid": f"d-{name}", "resourceVersion": str(self.version), "ownerReferences": owners}
        return {**body, "metadata": {**meta, "namespace": namespace}}

    async def apply_status(self, resource: Resource, namespace: str, name: str, body: Raw) -> Raw:
        self.version += 1
        self.statuses.append((elapsed(), (namespace, name)))
        return {**pool(name, self.version), "status": body["status"]}

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw:
        if resource == DEPLOYMENTS:
            raise ApiError(404, "NotFound", "no such Deployment")
        owner = {"uid": f"d-{name}", "controller": True}
        return {"metadata": {"namespace": namespace, "name": name, "uid": f"r-{name}", "ownerReferences": [owner]}}

    async def create(self, resource: Resource, namespace: str, body: Raw) -> Raw:
        self.events.append(body)
        return body

    async def create_token_review(self, token: str, audience: str) -> Raw:
        if self.down:
            raise ConnectionError("no answer")
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        extra = {EXTRA_POD_UID: [claims["sub"]], EXTRA_POD_NAME: [claims["sub"]]}
        user = {"username": "system:serviceaccount:team:default", "extra": extra}
        return {"authenticated": True, "audiences": [audience], "user": user}


def pool(name: str, version: int) -> Raw:
    """Return a pool that always has one worker."""
    meta = {"namespace": "team", "name": name, "uid": f"u-{name}", "resourceVersion": str(version), "generation": 1}
    spec = {
        "activityArn": ARN + name,
        "handlerImage": "i",
        "maxWorkers": 1,
        "minWorkers": 1,
        "activation": {"mode": "None"},
    }
    return {"metadata": meta, "spec": spec}


def pod(deployment: Raw, pool_name: str) -> Raw:
    """Return the running pod of a Deployment."""
    name = deployment["metadata"]["name"]
    owner = {"kind": "ReplicaSet", "name": name, "uid": f"r-{name}", "controller": True}
    labels = {**deployment["spec"]["template"]["metadata"]["labels"], LABEL_POOL: pool_name}
    state = {"name": "worker", "state": {"running": {"startedAt": _stamp()}}, "restartCount": 0}
    return {
        "metadata": {
            "namespace": "team", "name": f"p-{pool_name}", "uid": f"p-{pool_name}", "resourceVersion": "2000",
            "labels": labels, "ownerReferences": [owner], "creationTimestamp": _stamp(),
        },
        "spec": {"nodeName": "node"},
        "status": {
            "phase": "Running", "containerStatuses": [state],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _stamp()}],
        },
    }  # fmt: skip


class Operator:
    """The operator of the pools. `silent` are the pools whose workers have a new token for each report."""

    def __init__(self, pools: int) -> None:
        self.api = Api()
        self.queue = WorkQueue(elapsed)
        self.store = Store(self.queue.add)
        self.delays = DelayQueue(self.queue.add, elapsed)
        self.all_pools = AllPools(self.store, self.queue, self.delays, elapsed)
        elector = SimpleNamespace(leading=True, reachable=True, led_since=wall() - 1000.0, term=1)
        freshness = Freshness(100.0, elapsed)
        kube = cast("Any", self.api)
        self.publisher = EventPublisher(kube, "me", allowed=lambda: True, clock=elapsed, wall=wall)
        parts = _ClusterParts(
            kube, cast("Any", wall), self.queue, self.store, freshness, Ownership(self.store, kube),
            cast("Any", elector), cast("Any", None), self.publisher, self.delays, self.all_pools,
        )  # fmt: skip
        settings = OperatorSettings()
        self.metrics = metrics = Metrics("1.0")
        services = ClusterServices(
            settings=settings,
            kube=kube,
            store=self.store,
            ownership=parts.ownership,
            elector=cast("Any", elector),
            metrics=metrics,
            enqueue=self.queue.add,
            enqueue_urgent=self.queue.add,
            enqueue_all=self.all_pools.enqueue,
            spread_all=self.all_pools.enqueue_spread,
            emit_event=parts.emit_event,
            fail=lambda _: None,
            policy=TenancyPolicy,
            now=wall,
        )
        self.components: Components = build_components(services)
        deps = _reconciler_deps(parts, services, self.components, core_functions(settings))
        deps.prepare = self._prepare
        self.reconciler = Reconciler(deps, ready=lambda: True, clock=elapsed, jitter=lambda: 0.5)
        self.names = [f"pool-{number}" for number in range(pools)]
        self.silent: set[str] = set()
        self.sequence = 0
        self.sent = 0

    async def _prepare(self, namespace: str) -> None:
        """There is no CA bundle in these tests."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Operator"]:
        """Run the operator with its pools at rest."""
        for name in self.names:
            self.store.put(POOLS, pool(name, 1))
        work = (self.delays.run(), self.publisher.run(), self.reconciler.run())
        tasks = [asyncio.create_task(one) for one in work]
        await asyncio.sleep(1.0)
        for name in self.names:
            (deployment,) = self.store.of_pool(DEPLOYMENTS, ("team", name))
            self.store.put(PODS, pod(deployment, name))
        tasks.append(asyncio.create_task(self._workers()))
        await asyncio.sleep(40.0)
        self.api.statuses.clear()
        self.api.events.clear()
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _workers(self) -> None:
        """Report for every worker, often enough for none to count as silent."""
        while True:
            self.sequence += 1
            for name in self.names:
                await self._report(name)
            await asyncio.sleep(2.5)

    async def _report(self, name: str) -> None:
        self.sent += 1
        subject = f"p-{name}"
        token = bearer(subject, str(self.sent) if name in self.silent else "")
        try:
            identity = await self.components.reports.authenticator.identify(token)
        except ReviewUnavailableError:
            return
        one = report(
            namespace="team", pool=name, pod_uid=identity.pod_uid, pod_name=subject, sequence=self.sequence, slots=1,
            idle_seconds=elapsed(),
        )  # fmt: skip
        self.components.reports.record(one, wall())

    def unauthenticated(self) -> set[str]:
        """Return the pools whose status says that reports cannot be authenticated."""
        found = set()
        for key, raw in self.store.pools().items():
            conditions = raw.get("status", {}).get("conditions", ())
            if any(one["reason"] == Reason.REPORTS_UNAUTHENTICATED for one in conditions):
                found.add(key[1])
        return found


def bearer(subject: str, salt: str = "") -> str:
    """Return the header with a pod's token; another `salt` makes another token."""
    claims = {"aud": TOKEN_AUDIENCE, "exp": 2_000_000.0, "sub": subject, "jti": salt}
    return f"Bearer e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}.c2ln"
