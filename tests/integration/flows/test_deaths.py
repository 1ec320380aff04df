"""Workers of ours and of the package's die while they hold a job; the monitor handles the job."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from activity_worker.activity import TaskRequest
from activity_worker.contract import LeasedTask
from activity_worker.flows import Failure, Flow, FlowWorkers, JobState, LockMonitor, MonitorOptions
from activity_worker.sources import redis_recovery
from activity_worker.sources.redis import RedisSource
from activity_worker.sources.redis_job import RedisQueue
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient, open_client
from tests.eventually import eventually
from tests.integration.flows.shop import PREPARED, SHOP
from tests.integration.flows.worker_process import worker
from tests.peers.queues.peer import PeerFlow

QUEUES = [(flow_queue.flow, flow_queue.name) for flow_queue in SHOP.flow_queues()]


@contextlib.asynccontextmanager
async def monitored(client: RedisClient, requeue: int = 0) -> AsyncIterator[LockMonitor]:
    """Run a monitor while the context is open."""
    monitor = LockMonitor(client, QUEUES, MonitorOptions(look_seconds=0.05, gap_seconds=0.3, requeue=requeue))
    running = asyncio.create_task(monitor.run())
    try:
        yield monitor
    finally:
        monitor.stop()
        await running


async def in_stock(request: TaskRequest) -> dict[str, Any]:
    return {"done": True}


async def test_monitor_fails_the_job_of_their_dead_worker(flow: Flow, peer: PeerFlow, client: RedisClient) -> None:
    async def die(job: dict[str, Any]) -> dict[str, Any]:
        await peer.kill()
        return {}

    await peer.workers("prepare", die, lock=1)
    job_id = await flow.create({"user": 1})
    async with monitored(client) as monitor:
        job = await flow.wait(job_id, timeout_seconds=20)

    assert (job.failure, monitor.failed) == (Failure("prepare lock time exceeded", "prepare"), 1)


async def test_pool_beside_their_workers_runs_the_job_of_their_dead_worker(
    flow: Flow, peer: PeerFlow, client: RedisClient, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No monitor runs."""
    monkeypatch.setattr(redis_recovery, "LOOK_SECONDS", 0.1)

    async def die(job: dict[str, Any]) -> dict[str, Any]:
        await peer.kill()
        return {}

    await peer.workers("prepare", die, lock=1)
    job_id = await flow.create({"user": 1})
    await eventually("their worker has died with its job", lambda: client.call("LLEN", keys.processing("prepare")))
    queue = RedisQueue("shop", "prepare", next_queue="send", block_seconds=0.1)
    pool = RedisSource(open_client(redis_url), queue, owns_client=True, recovers=True)

    async def leased() -> LeasedTask | None:
        return await pool.lease("ours")

    task = await eventually("the pool leases the lost job", leased)
    assert task is not None
    await pool.succeed(task.token, "{}")
    await pool.close()

    job = await flow.get(job_id)
    assert (job.state, job.queue, job.fields["retries:prepare"]) == (JobState.WAITING, "send", 1)


async def test_killed_parent_is_requeued_and_waits_for_the_same_children(
    flow: Flow, client: RedisClient, redis_url: str
) -> None:
    job_id = await flow.create({"user": 1, **PREPARED})
    await client.call("LMOVE", keys.waiting("prepare"), keys.waiting("check"), "LEFT", "RIGHT")
    flags = ("--redis-renew-lock", "true", "--redis-lock-seconds", "1", "--redis-next-queue", "send")
    async with worker("activity_worker.flows.parent:wait_for_children", redis_url, "shop", "check", *flags) as process:
        await eventually("children wait", lambda: client.call("LLEN", keys.waiting("check:stock")), seconds=30)
        process.kill()
        await process.wait()
    children = (await flow.get(job_id)).child_keys()

    workers = FlowWorkers(flow)
    workers.parents("check", check_seconds=0.05)
    workers.serve("check:stock", in_stock)
    async with monitored(client, requeue=3) as monitor, workers:

        async def arrived() -> bool:
            job = await flow.get(job_id)
            return (job.state, job.queue) == (JobState.WAITING, "send")

        await eventually("another parent has finished the job", arrived)

    assert (await flow.get(job_id)).child_keys() == children
    assert (monitor.requeued, monitor.failed) == (1, 0)
    assert await flow.lengths(["check", "check:stock"]) == dict.fromkeys(("check", "check:stock"), (0, 0))
