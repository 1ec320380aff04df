"""From the arrival of a task at an empty pool to the write of replicas: for one task, and for a burst of 40."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import replace

from tests.bench.api_server import ApiServer
from tests.bench.bench_cluster import bench_cluster
from tests.bench.idle_pools import MAX_WORKERS, BenchPool, Sizes, make_pools, percentile, remove, settled, watching
from tests.bench.operator_process import operating
from tests.bench.table import Row, at_most
from tests.bench.tls_fake import TlsFake, tls_fake
from tests.cluster.progress import step

RUNS = 50
IDLE_POOLS = 150
BURSTS = 5
BURST_TASKS = 40
#: The service holds an empty poll for 60 s. Here it is shorter, so that both polls of each pool open soon. That makes
#: arrivals between two polls more likely, so the measured delay is not flattered.
HOLD_SECONDS = 20.0
GOAL_ONE_SECONDS, GOAL_BURST_SECONDS = 0.5, 1.0
#: Seconds between two runs, plus a random part, so that no run keeps step with the operator's own intervals.
PAUSE_SECONDS = 0.2
GIVE_UP_SECONDS = 30.0
SETTLE_SECONDS = 120.0

#: The quoted delays of peers, at best: CloudWatch's counts of Step Functions are a minute late, and its users poll them
#: at intervals; KEDA with a Redis list, tuned to poll every second, took 3.4 s to 20 replicas.
CLOUDWATCH_SECONDS, KEDA_BURST_SECONDS = 60.0, 3.4
PEER = "by CloudWatch: 60-330 s (quoted)"
KEDA_BURST = "KEDA 2.21 on Redis, 20 replicas: 73-75 s, tuned 3.4-14.4 s (quoted)"

_HOW = (
    "From before StartExecution is sent (HTTPS, to the fake that ships) until a watch of the Deployment tells replicas "
    "(so it includes both ways); a pool a run; the operator is the real process, over TLS to a real API server. The "
    "revision is proven by status.provenRevision, as a former leader leaves it; pods stay Pending (no node fits)."
)


def run() -> list[Row]:
    """Measure arrivals in a quiet operator, arrivals beside idle pools, and bursts."""
    return asyncio.run(_run())


async def _run() -> list[Row]:
    async with bench_cluster() as at, tls_fake(at.folder, hold_seconds=HOLD_SECONDS) as fake:
        alone = await make_pools(at.api, fake, "alone", RUNS)
        async with operating(at, fake), watching(at.api) as sizes:
            await settled(at.api, fake, alone, SETTLE_SECONDS)
            quiet = [await _arrival(at.api, fake, sizes, pool, 1) for pool in alone]
            more = await make_pools(at.api, fake, "more", RUNS + IDLE_POOLS)
            bursting = await make_pools(at.api, fake, "burst", BURSTS)
            await settled(at.api, fake, more + bursting, SETTLE_SECONDS)
            with step(f"{RUNS} arrivals beside {IDLE_POOLS} idle pools"):
                beside = [await _arrival(at.api, fake, sizes, pool, 1) for pool in more[:RUNS]]
            with step(f"{BURSTS} bursts of {BURST_TASKS}"):
                bursts = [await _arrival(at.api, fake, sizes, pool, BURST_TASKS) for pool in bursting]
    return [_one("no other work", quiet), _one(f"beside {IDLE_POOLS} idle pools", beside), _burst(bursts)]


async def _arrival(api: ApiServer, fake: TlsFake, sizes: Sizes, pool: BenchPool, tasks: int) -> float:
    """Start `tasks` executions at once; return the seconds until as many replicas were written; clean up."""
    began = time.perf_counter()
    starts = (fake.call("StartExecution", stateMachineArn=pool.machine, input="{}") for _ in range(tasks))
    await asyncio.gather(*starts)
    took = await sizes.reached(pool.name, tasks, GIVE_UP_SECONDS) - began
    await remove(api, pool)
    await asyncio.sleep(PAUSE_SECONDS * (1 + random.random()))
    return took


def _one(beside: str, seconds: Sequence[float]) -> Row:
    p99 = percentile(seconds, 0.99)
    row = at_most(
        f"arrival at an empty pool -> replicas written, {beside}: p99",
        p99,
        GOAL_ONE_SECONDS,
        unit="s",
        peer=PEER,
        how=f"{len(seconds)} runs: {_spread(seconds)}. {_HOW}",
    )
    return replace(row, against=f"{CLOUDWATCH_SECONDS / p99:,.0f}x sooner than 60 s; {row.against}")


def _burst(seconds: Sequence[float]) -> Row:
    worst = max(seconds)
    row = at_most(
        f"burst of {BURST_TASKS} at zero -> replicas {MAX_WORKERS} written: slowest",
        worst,
        GOAL_BURST_SECONDS,
        unit="s",
        peer=KEDA_BURST,
        how=f"{len(seconds)} runs: {_spread(seconds)}. As above, with {BURST_TASKS} executions started at once.",
    )
    return replace(row, against=f"{KEDA_BURST_SECONDS / worst:.1f}x sooner than 3.4 s; {row.against}")


def _spread(seconds: Sequence[float]) -> str:
    p50, p99 = percentile(seconds, 0.5), percentile(seconds, 0.99)
    return f"p50 {p50:.3f} s, p99 {p99:.3f} s, slowest {max(seconds):.3f} s"
