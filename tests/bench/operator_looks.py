"""What one look at an active pool costs, by its number of pods: the operator's own parts, without any server.

Each look follows a report of one worker, as it does in a pool at work. The API server is a stand-in that answers at
once, so the number is processor time of the operator alone.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from unittest.mock import AsyncMock, patch

from activity_operator.cluster.kube import KubeClient
from activity_operator.core.tenancy import TenancyPolicy
from activity_operator.metrics import Metrics
from activity_operator.process import Process
from activity_operator.settings import OperatorSettings
from activity_operator.wiring import build_process
from tests.bench.active_pool import KEY, ActivePool, AnsweringApi
from tests.bench.table import Row, number

#: Pods of the pool, and the milliseconds of a look at it before looks cost only what changed (same script, same
#: machine).
PODS = {4: 0.70, 50: 1.82, 200: 5.61, 1_000: 24.4}
LOOKS = 200


def run() -> list[Row]:
    """Measure one look at each size."""
    return [_row(pods, before) for pods, before in PODS.items()]


def _row(pods: int, before: float) -> Row:
    milliseconds = asyncio.run(_measured(pods))
    return Row(
        f"processor time of one look at a pool of {pods:,} pods at work",
        number(milliseconds, "ms"),
        against=f"{before:g} ms when all pods were parsed; {milliseconds / before:.2f}x",
        how=f"median of {LOOKS} looks, each after a report with another number of busy slots.",
    )


async def _measured(pods: int) -> float:
    """Return the milliseconds of a look, the median."""
    api = AnsweringApi()
    process = await leader(api)
    pool = ActivePool(pods, api)
    await pool.begin(process)
    # The first looks write the Deployment and the status, and read the ReplicaSet of the pods.
    for _ in range(3):
        await process.reconciler.reconcile(KEY)
    spent = []
    for _ in range(LOOKS):
        pool.report_change(process)
        began = time.thread_time()
        await process.reconciler.reconcile(KEY)
        spent.append(time.thread_time() - began)
    return statistics.median(spent) * 1000


async def leader(api: AnsweringApi) -> Process:
    """Return an operator that leads, without any of its servers or loops running; `api` is its API server."""
    settings = OperatorSettings(
        namespace="ops",
        health_host="127.0.0.1",
        health_port=0,
        status_rate=1000.0,
        # Nothing renews the Lease while the benchmark runs.
        lease_duration_seconds=300.0,
        lease_renew_deadline_seconds=290.0,
    )

    async def connect(*_: object) -> AnsweringApi:
        return api

    with patch.object(KubeClient, "connect", connect):
        process = await build_process(settings, AsyncMock(), Metrics("bench"), TenancyPolicy)
    process.components.certificates.publish = AsyncMock()  # type: ignore[method-assign]
    process.watcher.start = lambda: None  # type: ignore[method-assign]
    await process.elector.step()
    await process.resyncer.resync()
    process.components.ready = True
    return process
