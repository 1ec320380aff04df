"""500 pools on the queues of one Redis server: the delay from a job to the write of replicas, and counting's cost."""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections.abc import Sequence
from typing import Any

from activity_operator.api.spec import parse_spec
from activity_operator.cluster.resources import DEPLOYMENTS, PODS, POOLS, SECRETS
from activity_operator.core.manifests import revision_of
from activity_worker.contract import LABEL_POOL
from activity_worker.wire import redis_keys
from activity_worker.wire.redis_connection import RedisClient, open_client
from tests.bench import request_counts
from tests.bench.api_server import ApiServer
from tests.bench.bench_cluster import POOLS_NAMESPACE, USER, bench_cluster
from tests.bench.idle_pools import NOWHERE, Sizes, percentile, watching
from tests.bench.operator_at_rest import Window, measure, quiet
from tests.bench.operator_process import operating
from tests.bench.table import Row, at_most
from tests.bench.tls_fake import tls_fake
from tests.cluster.progress import step
from tests.eventually import eventually
from tests.servers.redis import redis_server

POOLS_AT_REST = 500
ARRIVALS, BURSTS, BURST_JOBS = 100, 20, 20
MAX_WORKERS = 20
PASSWORD = "bench"
SECRET = "queues"
WINDOW_SECONDS = 60.0
SETTLE_SECONDS = 240.0
GIVE_UP_SECONDS = 30.0
#: Seconds between two runs, plus a random part, so that no run keeps step with the operator's rounds.
PAUSE_SECONDS = 0.2
GOAL_ONE_SECONDS, GOAL_BURST_SECONDS = 0.3, 0.5
GOAL_WRITES, GOAL_RSS_MEGABYTES = 0.0, 120.0
_AT_ONCE = 10

#: KEDA 2.21.0 with Redis lists, measured once on such a cluster.
KEDA_ONE = "KEDA 2.21: 27-30 s, tuned to ask every second 0.1-1.0 s (quoted)"
KEDA_BURST = "KEDA 2.21: 73-75 s, tuned 3.4-14.4 s (quoted)"
KEDA_WRITES = "KEDA 2.21: 1,250 /min (quoted)"
KEDA_MEMORY = "KEDA 2.21, operator and adapter: 351 MB (quoted)"
KEDA_CPU = "KEDA 2.21, every 30 s: 3 s/min (quoted)"

_HOW = (
    "From before RPUSH is sent until a watch of the Deployment tells replicas (so it includes both ways), beside "
    f"{POOLS_AT_REST} pools on the same server that are counted every 100 ms; a pool a run; the operator is the real "
    "process on a real API server. The revision is proven by status.provenRevision; pods stay Pending (no node fits)."
)


def run() -> list[Row]:
    """Measure arrivals beside 500 pools at rest, then the pools at rest alone."""
    return asyncio.run(_run())


async def _run() -> list[Row]:
    # `operating` needs the fake; no pool uses it.
    async with bench_cluster() as at, tls_fake(at.folder, hold_seconds=1.0) as fake:
        with redis_server(password=PASSWORD) as server:
            await _make_secret(at.api, server.url)
            client = open_client(server.url)
            with step(f"{POOLS_AT_REST} pools at rest, {ARRIVALS + BURSTS} for arrivals"):
                await _make_pools(at.api, [f"rest-{number}" for number in range(POOLS_AT_REST)])
                alone = await _make_pools(at.api, [f"one-{number}" for number in range(ARRIVALS)])
                bursting = await _make_pools(at.api, [f"burst-{number}" for number in range(BURSTS)])
            async with operating(at, fake) as operator, watching(at.api) as sizes:
                await eventually(
                    "all pools at rest", lambda: _settled(at.api), seconds=SETTLE_SECONDS, every_seconds=5.0
                )
                with step(f"{ARRIVALS} arrivals"):
                    one = [await _arrival(at.api, client, sizes, name, 1) for name in alone]
                with step(f"{BURSTS} bursts of {BURST_JOBS}"):
                    burst = [await _arrival(at.api, client, sizes, name, BURST_JOBS) for name in bursting]
                await eventually(
                    "a cluster without writes", lambda: quiet(at), seconds=SETTLE_SECONDS, every_seconds=0.0
                )
                with step(f"measuring for {WINDOW_SECONDS:g} s"):
                    before = await _counted(client)
                    window = await measure(at, operator, WINDOW_SECONDS)
                    rounds = (await _counted(client) - before) / POOLS_AT_REST
            await client.close()
    logged = at.cluster.audit_log is not None
    return [_row_one(one), _row_burst(burst), *_cost(window, rounds, logged=logged)]


async def _make_secret(api: ApiServer, url: str) -> None:
    data = {"url": base64.b64encode(url.encode()).decode()}
    await api.create(SECRETS, POOLS_NAMESPACE, {"metadata": {"name": SECRET}, "data": data})


async def _make_pools(api: ApiServer, names: Sequence[str]) -> Sequence[str]:
    """Create pools at zero, each on a queue of its name, and prove their revisions as a former leader would have."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def make(name: str) -> None:
        async with turn:
            source = {"urlSecretRef": {"name": SECRET, "key": "url"}, "flow": "bench", "queue": name}
            spec: dict[str, Any] = {
                "source": {"redis": source},
                "handlerImage": "registry.invalid/handler:1",
                "maxWorkers": MAX_WORKERS,
                "podTemplate": {"spec": {"nodeSelector": NOWHERE}},
            }
            await api.create(POOLS, POOLS_NAMESPACE, {"metadata": {"name": name}, "spec": spec})
            proven = {"provenRevision": revision_of(parse_spec(spec))}
            await api.apply_status(POOLS, POOLS_NAMESPACE, name, proven)

    await asyncio.gather(*(make(name) for name in names))
    return names


async def _settled(api: ApiServer) -> bool:
    """Whether every pool's status shows zero workers and no waiting job."""
    pools = (await api.get(POOLS.path(POOLS_NAMESPACE)) or {})["items"]
    statuses = [pool.get("status") or {} for pool in pools]
    return all(_reason(status) == "ScaledToZero" and status.get("backlog") == 0 for status in statuses)


def _reason(status: dict[str, Any]) -> str:
    """Return the reason of a pool's Ready condition."""
    conditions: list[dict[str, str]] = status.get("conditions") or []
    return next((condition["reason"] for condition in conditions if condition["type"] == "Ready"), "")


async def _arrival(api: ApiServer, client: RedisClient, sizes: Sizes, name: str, jobs: int) -> float:
    """Add `jobs` jobs; return the seconds until as many replicas were written; clean up."""
    waiting = redis_keys.waiting(name)
    began = time.perf_counter()
    await client.call("RPUSH", waiting, *(f"job-{number}" for number in range(jobs)))
    took = await sizes.reached(name, jobs, GIVE_UP_SECONDS) - began
    await client.call("DEL", waiting)
    await api.delete(POOLS, POOLS_NAMESPACE, name)

    async def gone() -> bool:
        paths = (
            f"{resource.path(POOLS_NAMESPACE)}?limit=1&labelSelector={LABEL_POOL}={name}"
            for resource in (DEPLOYMENTS, PODS)
        )
        return not any([(await api.get(path) or {})["items"] for path in paths])

    await eventually(f"what {name} made is gone", gone, seconds=60.0, every_seconds=0.2)
    await asyncio.sleep(PAUSE_SECONDS * (1 + random.random()))
    return took


async def _counted(client: RedisClient) -> int:
    """Return how often the server was asked for the length of a queue."""
    statistics = str(await client.call("INFO", "commandstats"))
    line = next((line for line in statistics.splitlines() if line.startswith("cmdstat_llen:")), "calls=0,")
    return int(line.partition("calls=")[2].partition(",")[0])


def _row_one(seconds: Sequence[float]) -> Row:
    return at_most(
        f"a job at an empty pool, {POOLS_AT_REST} pools on its Redis server -> replicas written: p99",
        percentile(seconds, 0.99),
        GOAL_ONE_SECONDS,
        unit="s",
        peer=KEDA_ONE,
        how=f"{len(seconds)} runs: {_spread(seconds)}. {_HOW}",
    )


def _row_burst(seconds: Sequence[float]) -> Row:
    return at_most(
        f"{BURST_JOBS} jobs at once, the same -> {BURST_JOBS} replicas written: p99",
        percentile(seconds, 0.99),
        GOAL_BURST_SECONDS,
        unit="s",
        peer=KEDA_BURST,
        how=f"{len(seconds)} runs: {_spread(seconds)}. As above.",
    )


def _cost(window: Window, rounds: float, *, logged: bool) -> list[Row]:
    own = window.by_user.get(USER, window.all_requests) if logged else window.all_requests
    writes = request_counts.writes(own)
    cpu = (window.after.cpu_seconds - window.before.cpu_seconds) / window.minutes
    name = f"{POOLS_AT_REST} Redis pools at zero"
    counted = f"{rounds:.0f} rounds of {POOLS_AT_REST} LLEN in {window.minutes * 60:.0f} s"
    return [
        at_most(
            f"API writes a minute, {name}, without the Lease",
            writes.total() / window.minutes,
            GOAL_WRITES,
            unit="/min",
            peer=KEDA_WRITES,
            how=f"{'the audit log' if logged else 'everybody'}: {request_counts.as_text(writes)}; {counted}.",
        ),
        at_most(
            f"operator's memory (RSS), {name}",
            window.rss_bytes / 1e6,
            GOAL_RSS_MEGABYTES,
            unit="MB",
            peer=KEDA_MEMORY,
            how=f"the largest of /proc's VmRSS every 5 s; {window.after.open_files} open files.",
        ),
        Row(
            f"operator's processor time a minute, {name}",
            f"{cpu:.3g} s/min",
            KEDA_CPU,
            how=f"user and system time of the process from /proc; {counted}, which is "
            f"{cpu * window.minutes / max(rounds, 1) * 1e3:.1f} ms a round, everything else that it does included.",
        ),
    ]


def _spread(seconds: Sequence[float]) -> str:
    p50, p99 = percentile(seconds, 0.5), percentile(seconds, 0.99)
    return f"p50 {p50:.3f} s, p99 {p99:.3f} s, slowest {max(seconds):.3f} s"
