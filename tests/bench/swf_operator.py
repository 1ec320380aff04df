"""Task lists of Amazon SWF, counted within its quota: the age of counts, and the delay from a task to its replicas."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from activity_operator.api.spec import parse_spec
from activity_operator.backlog.protocol import Key, PollTarget
from activity_operator.backlog.swf import Client, Swf
from activity_operator.backlog.task_list_rounds import COUNTS_PER_SECOND, TaskListPoller
from activity_operator.cluster.resources import DEPLOYMENTS, POOLS
from activity_operator.core.manifests import revision_of
from activity_worker.testing import SwfFake
from activity_worker.wire.swf import SwfClient
from tests.bench.api_server import ApiServer, RefusedError
from tests.bench.bench_cluster import CRD_FILE, CRDS, NAMESPACES, POOLS_NAMESPACE, SYSTEM
from tests.bench.idle_pools import NOWHERE, Sizes, percentile, watching
from tests.bench.operator_process import operating
from tests.bench.table import Row, at_most
from tests.bench.tls_fake import SWF, TlsFake, tls_fake
from tests.cluster.progress import step
from tests.eventually import eventually
from tests.servers.control_plane import control_plane, kubeconfig

DOMAIN = "bench"
#: The quota of CountPendingActivityTasks in an account and a region (AWS, "Amazon SWF Quotas").
QUOTA_PER_SECOND, QUOTA_BURST = 6.0, 200.0
LISTS, LIST_SECONDS = 200, 120.0
ALONE, BESIDE, NEIGHBOURS = 60, 20, 40
GIVE_UP_SECONDS, SETTLE_SECONDS = 60.0, 120.0
#: Seconds between the first count of a pool's list and its task, plus a random part: of `SPREAD_SECONDS` alone, and of
#: the interval of its counts beside other pools. So a task comes at any moment between two counts.
PAUSE_SECONDS, SPREAD_SECONDS = 0.5, 0.5
GOAL_ARRIVAL_SECONDS = 0.5
_AGE_GOAL = LISTS / COUNTS_PER_SECOND + 5

_HOW = (
    "from before the task is scheduled until a watch of the Deployment shows replicas; the fake's own quota is AWS's "
    f"({QUOTA_BURST:.0f} counts, {QUOTA_PER_SECOND:.0f} a second), over TLS; the operator is the real process on a "
    "real API server; a pool a run, whose revision is proven by status.provenRevision"
)


def run() -> list[Row]:
    """Measure the age of 200 counts, then arrivals at pools alone in their region and beside 40 others."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
    return [*asyncio.run(_ages()), *asyncio.run(_arrivals())]


async def _ages() -> list[Row]:
    """Count 200 task lists for two minutes, with the operator's own poller and client."""

    def open_plain(target: PollTarget) -> Client:
        return SwfClient.open(region=target.region, endpoint_url=target.endpoint_url)

    oldest: list[float] = []
    async with SwfFake(domains=[DOMAIN]) as fake:
        fake.faults.throttle("CountPendingActivityTasks", per_second=QUOTA_PER_SECOND, burst=QUOTA_BURST)
        service = Swf(open_plain)
        poller = TaskListPoller(service, on_change=lambda _: None, now=time.time)
        keys: list[Key] = [("bench", f"list-{number}") for number in range(LISTS)]
        for key in keys:
            poller.order(key, PollTarget("", "us-east-1", fake.url, domain=DOMAIN, task_list=key[1]))
        with step(f"{LISTS} task lists, {LIST_SECONDS:.0f} s"):
            await asyncio.sleep(LISTS / COUNTS_PER_SECOND)
            before, began = fake.counts["call:CountPendingActivityTasks"], time.monotonic()
            for _ in range(round(LIST_SECONDS)):
                counts = [count for key in keys if (count := poller.latest(key)[0]) is not None]
                if len(counts) == LISTS:
                    oldest.append(time.time() - min(count.observed_at for count in counts))
                await asyncio.sleep(1.0)
            rate = (fake.counts["call:CountPendingActivityTasks"] - before) / (time.monotonic() - began)
            throttled = sum(fake.faults.seen.values())
        await poller.stop()
        await service.close()
    how = (
        f"looked at every second for {LIST_SECONDS:.0f} s, median {percentile(oldest, 0.5):.1f} s; {rate:.2f} counts a "
        f"second, {throttled} of them throttled by the fake"
    )
    return [at_most(f"the oldest count of {LISTS} task lists at rest", max(oldest), _AGE_GOAL, unit="s", how=how)]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the operator under measurement runs."""

    kubeconfig: Path
    folder: Path


async def _arrivals() -> list[Row]:
    with control_plane({"token-of-bench": "bench"}) as plane:
        await asyncio.to_thread(plane.wait_ready)
        place = _Place(
            kubeconfig(plane.folder / "bench.kubeconfig", plane.url, "bench", "token-of-bench", plane.ca_file),
            plane.folder,
        )
        async with (
            ApiServer(place.kubeconfig) as api,
            tls_fake(place.folder, hold_seconds=60.0, module=SWF, flags=["--domain", DOMAIN]) as fake,
        ):
            await _set_up(api)
            limits = {"perSecond": QUOTA_PER_SECOND, "burst": QUOTA_BURST}
            await fake.order("limits", operation="CountPendingActivityTasks", **limits)
            async with operating(place, fake), watching(api) as sizes:
                with step(f"{ALONE} arrivals at a pool alone in its region"):
                    alone = [await _arrival(api, fake, sizes, f"one-{number}") for number in range(ALONE)]
                with step(f"{NEIGHBOURS} pools at rest, {BESIDE} arrivals"):
                    await asyncio.gather(*(_make_pool(api, fake, f"rest-{number}") for number in range(NEIGHBOURS)))
                    spread = (NEIGHBOURS + 1) / COUNTS_PER_SECOND
                    beside = [
                        await _arrival(api, fake, sizes, f"other-{number}", spread=spread) for number in range(BESIDE)
                    ]
                with step(f"the same with pollAtZero, {ALONE} arrivals"):
                    polled = [
                        await _arrival(api, fake, sizes, f"polled-{number}", polled=True) for number in range(ALONE)
                    ]
                throttled = (await fake.state())["faults"]
    return [
        _row("a task at an empty pool, alone in its region", alone, GOAL_ARRIVAL_SECONDS, throttled),
        _row(f"the same, beside {NEIGHBOURS} pools at zero", beside, NEIGHBOURS / COUNTS_PER_SECOND + 1.0, throttled),
        _row(f"the same with pollAtZero, beside {NEIGHBOURS} pools at zero", polled, GOAL_ARRIVAL_SECONDS, throttled),
    ]


async def _set_up(api: ApiServer) -> None:
    """Install the CRD and make the two namespaces."""
    await api.create(CRDS, "", yaml.safe_load(CRD_FILE.read_text(encoding="utf-8")))
    for name in (SYSTEM, POOLS_NAMESPACE):
        await api.create(NAMESPACES, "", {"metadata": {"name": name}})

    async def served() -> bool:
        try:
            return await api.get(POOLS.path()) is not None
        except RefusedError:  # 429 while the storage is being made
            return False

    await eventually("the ActivityPool resource is served", served, seconds=60)


async def _make_pool(api: ApiServer, fake: TlsFake, name: str, *, polled: bool = False) -> None:
    """Create a pool at zero on a task list of its name, with a proven revision, and wait until it is counted."""
    spec: dict[str, Any] = {
        "source": {"swf": {"domain": DOMAIN, "taskList": name, "pollAtZero": polled}},
        "aws": {"region": "us-east-1", "endpointUrl": fake.url},
        "handlerImage": "registry.invalid/handler:1",
        "maxWorkers": 20,
        "podTemplate": {"spec": {"nodeSelector": NOWHERE}},
    }
    await api.create(POOLS, POOLS_NAMESPACE, {"metadata": {"name": name}, "spec": spec})
    await api.apply_status(POOLS, POOLS_NAMESPACE, name, {"provenRevision": revision_of(parse_spec(spec))})

    async def counted() -> bool:
        found = await api.get(POOLS.path(POOLS_NAMESPACE, name)) or {}
        return (found.get("status") or {}).get("backlog") == 0

    await eventually(f"{name} is counted", counted, seconds=SETTLE_SECONDS, every_seconds=0.5)


async def _arrival(
    api: ApiServer, fake: TlsFake, sizes: Sizes, name: str, *, polled: bool = False, spread: float = SPREAD_SECONDS
) -> float:
    """Schedule a task at a new pool; return the seconds until a replica was written; clean up."""
    await _make_pool(api, fake, name, polled=polled)
    await asyncio.sleep(PAUSE_SECONDS + spread * random.random())
    began = time.perf_counter()
    await fake.order("tasks", domain=DOMAIN, taskList=name)
    took = await sizes.reached(name, 1, GIVE_UP_SECONDS) - began
    await api.delete(POOLS, POOLS_NAMESPACE, name)
    found = (await api.get(DEPLOYMENTS.path(POOLS_NAMESPACE)) or {})["items"]
    for deployment in found:
        if deployment["metadata"]["name"].startswith(f"{name}-"):
            await api.delete(DEPLOYMENTS, POOLS_NAMESPACE, deployment["metadata"]["name"])
    return took


def _row(what: str, seconds: Sequence[float], goal: float, throttled: dict[str, int]) -> Row:
    p50, p99 = percentile(seconds, 0.5), percentile(seconds, 0.99)
    spread = f"{len(seconds)} runs: p50 {p50:.3f} s, p99 {p99:.3f} s, slowest {max(seconds):.3f} s"
    how = f"{spread}, {_HOW}; throttled calls: {sum(throttled.values())}"
    return at_most(f"{what} -> replicas written: p99", p99, goal, unit="s", how=how)
