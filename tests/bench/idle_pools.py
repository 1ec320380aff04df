"""Pools at zero whose revision is proven, and a watch that records when replicas are written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from activity_operator.api.spec import parse_spec
from activity_operator.cluster.resources import DEPLOYMENTS, PODS, POOLS
from activity_operator.core.manifests import revision_of
from activity_operator.core.sentinel_plan import RESTING_POLLS
from activity_worker.contract import LABEL_POOL
from tests.bench.api_server import ApiServer
from tests.bench.bench_cluster import POOLS_NAMESPACE
from tests.bench.tls_fake import TlsFake
from tests.eventually import eventually

#: The most workers of each pool.
MAX_WORKERS = 40
#: No node has this label, so the workers' pods stay Pending and use no processor. A pod that waits for a node is no
#: failed start, so the breaker stays closed. The measurement ends with the write of replicas.
NOWHERE = {"activitypool-bench": "nowhere"}
_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class BenchPool:
    """One pool, its activity, and the state machine whose executions bring it tasks."""

    name: str
    activity: str
    machine: str


async def make_pools(api: ApiServer, fake: TlsFake, prefix: str, count: int) -> list[BenchPool]:
    """Create pools at zero, each with an activity and a state machine of its own, and prove their revisions.

    A revision is proven when one of its workers has reported; the operator keeps that in `status.provenRevision` for
    the next leader. Here that field is written as a former leader would have written it.
    """
    turn = asyncio.Semaphore(_AT_ONCE)

    async def make(name: str) -> BenchPool:
        async with turn:
            activity, machine = await fake.machine(name)
            spec = _spec(activity, fake.url)
            await api.create(POOLS, POOLS_NAMESPACE, {"metadata": {"name": name}, "spec": spec})
            proven = {"provenRevision": revision_of(parse_spec(spec))}
            await api.apply_status(POOLS, POOLS_NAMESPACE, name, proven)
            return BenchPool(name, activity, machine)

    return list(await asyncio.gather(*(make(f"{prefix}-{number}") for number in range(count))))


def _spec(activity: str, endpoint_url: str) -> dict[str, Any]:
    return {
        "activityArn": activity,
        "handlerImage": "registry.invalid/handler:1",
        "maxWorkers": MAX_WORKERS,
        "aws": {"endpointUrl": endpoint_url},
        "podTemplate": {"spec": {"nodeSelector": NOWHERE}},
    }


async def settled(api: ApiServer, fake: TlsFake, pools: Sequence[BenchPool], seconds: float) -> None:
    """Wait until these pools' status shows them at rest at zero, and each has its two polls open."""
    names = {pool.name for pool in pools}

    async def at_rest() -> bool:
        found = (await api.get(POOLS.path(POOLS_NAMESPACE)) or {})["items"]
        resting = {pool["metadata"]["name"] for pool in found if _at_zero(pool)}
        activities = (await fake.state())["activities"]
        return names <= resting and all(activities[pool.activity]["open_polls"] >= RESTING_POLLS for pool in pools)

    await eventually(f"{len(pools)} pools at rest with their polls open", at_rest, seconds=seconds, every_seconds=1.0)


async def remove(api: ApiServer, pool: BenchPool) -> None:
    """Delete a measured pool, and wait until its pods are gone."""
    await api.delete(POOLS, POOLS_NAMESPACE, pool.name)

    async def gone() -> bool:
        return not (await api.get(f"{PODS.path(POOLS_NAMESPACE)}?limit=1") or {})["items"]

    await eventually(f"the pods of {pool.name} are gone", gone, seconds=60.0, every_seconds=0.2)


def _at_zero(pool: dict[str, Any]) -> bool:
    status = pool.get("status") or {}
    reasons = {condition["type"]: condition["reason"] for condition in status.get("conditions") or ()}
    return bool(status.get("provenRevision")) and reasons.get("Ready") == "ScaledToZero"


@dataclass(slots=True)
class Sizes:
    """Replicas of Deployments as the watch reported them: pool -> the largest so far, and when each size came first.

    Times are `time.perf_counter`'s.
    """

    first: dict[tuple[str, int], float] = field(default_factory=dict)
    largest: dict[str, int] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def reached(self, pool: str, replicas: int, seconds: float) -> float:
        """Return when the watch first reported `replicas` or more for the pool; raises TimeoutError."""
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(lambda: self.largest.get(pool, 0) >= replicas)
        return min(at for (name, size), at in self.first.items() if name == pool and size >= replicas)

    async def take(self, event: dict[str, Any]) -> None:
        """Record one event of the watch."""
        now = time.perf_counter()
        found = event["object"]
        pool = found["metadata"].get("labels", {}).get(LABEL_POOL, "")
        replicas = int(found["spec"].get("replicas", 1))
        self.first.setdefault((pool, replicas), now)
        async with self.changed:
            self.largest[pool] = max(self.largest.get(pool, 0), replicas)
            self.changed.notify_all()


@asynccontextmanager
async def watching(api: ApiServer) -> AsyncIterator[Sizes]:
    """Watch the Deployments of the pools' namespace from now on."""
    sizes = Sizes()
    version = (await api.get(DEPLOYMENTS.path(POOLS_NAMESPACE)) or {})["metadata"]["resourceVersion"]

    async def follow() -> None:
        async for event in api.watch(DEPLOYMENTS, POOLS_NAMESPACE, version):
            await sizes.take(event)

    following = asyncio.create_task(follow())
    try:
        yield sizes
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that is not below `share` of them (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, -(-int(share * 1000) * len(ordered) // 1000) - 1))]
