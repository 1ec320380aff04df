"""5,000 pools at rest: how long the operator's main loop stands still, and what one failed TokenReview writes.

The operator's own parts run in this process, over an API server in memory. A standstill is measured in processor time
of the loop's thread, so that other work of the machine does not count. The pools are paused, so they need no source.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activity_operator import garbage_collection
from activity_operator.cluster.resources import POOLS
from activity_operator.health import ThreadedPage
from activity_operator.process import Process
from tests.bench.active_pool import AnsweringApi
from tests.bench.failed_review import failed_review_writes, settle
from tests.bench.operator_looks import leader
from tests.bench.table import Row, at_most, number

POOL_COUNT = 5_000
GOAL_MILLISECONDS = 100.0
RECONCILE_LOOPS = 8
#: Over this time the reconciliations after a sweep of 5,000 pools are spread.
WINDOW_SECONDS = 12.0
NAMESPACE = "bench"


def run() -> list[Row]:
    """Measure the loop in a window with a sweep and a scrape, the end of a term, and a failed TokenReview."""
    return asyncio.run(_collecting())


async def _collecting() -> list[Row]:
    """Measure with the garbage collector as the operator's program sets it."""
    async with garbage_collection.short_pauses():
        return await _rows()


async def _rows() -> list[Row]:
    api = AnsweringApi()
    process = await leader(api)
    await _fill(process, api)
    await settle(process, api)
    writes, events = await failed_review_writes(process, api)
    async with _standstills() as standstills, _loops(process):
        await process.resyncer.resync()
        began = time.monotonic()
        await ThreadedPage(process.metrics.render)()
        scrape = time.monotonic() - began
        await asyncio.sleep(WINDOW_SECONDS)
    spent = time.thread_time()
    process.reconciler.end_term()
    ended = 1000 * (time.thread_time() - spent)
    pools = f"{POOL_COUNT:,} pools"
    return [
        at_most(
            f"longest standstill of the main loop, {pools}",
            1000 * max(standstills),
            GOAL_MILLISECONDS,
            unit="ms",
            how="processor time of the loop's thread from one turn of a probe to the next, in a window with a sweep (a "
            f"LIST and a reconciliation of every pool) and a scrape, which a thread rendered in {scrape:.1f} s. The "
            "API server is in memory: pages of JSON and watch events are not in it.",
        ),
        Row(f"end of a term, {pools}", number(ended, "ms"), how="all states and series removed; processor time."),
        at_most(f"status writes after one failed TokenReview, {pools}", writes, 0, unit="", how=f"{events} Events."),
    ]


async def _fill(process: Process, api: AnsweringApi) -> None:
    for index in range(POOL_COUNT):
        arn = f"arn:aws:states:us-east-1:123456789012:activity:a{index}"
        spec = {"activityArn": arn, "handlerImage": "registry.invalid/handler:1", "maxWorkers": 10, "paused": True}
        metadata = {"name": f"pool-{index}", "generation": 1}
        process.store.put(POOLS, await api.create(POOLS, NAMESPACE, {"metadata": metadata, "spec": spec}))


@asynccontextmanager
async def _standstills() -> AsyncIterator[list[float]]:
    """Yield a list that gets the processor seconds of the loop's thread between two turns of a probe."""
    found: list[float] = []

    async def probe() -> None:
        while True:
            spent = time.thread_time()
            await asyncio.sleep(0.001)
            found.append(time.thread_time() - spent)

    probing = asyncio.create_task(probe())
    try:
        yield found
    finally:
        probing.cancel()


@asynccontextmanager
async def _loops(process: Process) -> AsyncIterator[None]:
    """Run the operator's reconcile loops and due times."""
    work = [process.delay_queue.run(), *(process.reconciler.run() for _ in range(RECONCILE_LOOPS))]
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
