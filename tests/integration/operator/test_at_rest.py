"""A pool at rest causes no write except the renewals of the operator's Lease."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from activity_operator.cluster.kube import Credentials, KubeClient
from activity_operator.cluster.resources import POOLS
from tests.eventually import consistently, eventually
from tests.integration.operator.arrange import operator, pool, replicas


async def test_pools_at_rest_cost_no_write(
    kube: KubeClient, load: Credentials, namespace: str, writes: Callable[[], list[dict[str, Any]]]
) -> None:
    """Resyncs pass; the statuses and Deployments are correct, so nothing is written."""
    for number in range(5):
        await kube.create(POOLS, namespace, pool(f"p{number}"))
    async with operator(namespace, load, sweep_seconds=1.0) as running:
        for number in range(5):
            await eventually(
                f"Deployment p{number}-r1 has no replicas", partial(replicas_are, kube, namespace, f"p{number}-r1", 0)
            )
            await eventually(f"pool p{number} has a status", partial(has_status, kube, namespace, f"p{number}"))
        await running.process.resyncer.resync()
        await eventually("the queue is empty", lambda: not len(running.process.queue))
        assert writes()
        await eventually("no write came for a while", partial(is_quiet, writes))
        looks = len(running.core.seen)
        rest: list[str] = []

        def is_at_rest() -> bool:
            rest.extend(f"{entry['verb']} {entry['requestURI']}" for entry in writes())
            return not rest

        # Longer than the interval at which counts are written.
        await consistently("nothing is written", is_at_rest, seconds=12, every_seconds=1, details=lambda: rest)
        assert len(running.core.seen) > looks, "the sweeps must have looked at the pools meanwhile"


async def is_quiet(writes: Callable[[], list[dict[str, Any]]]) -> bool:
    """Whether a second passed without a write."""
    await asyncio.sleep(1)
    return not writes()


async def replicas_are(kube: KubeClient, namespace: str, name: str, wanted: int) -> bool:
    """Whether the Deployment has that many replicas."""
    return await replicas(kube, namespace, name) == wanted


async def has_status(kube: KubeClient, namespace: str, name: str) -> bool:
    """Whether the pool's status is of its present generation."""
    found = await kube.get(POOLS, namespace, name)
    return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])
