"""Flows on a cluster, and on a server whose master failed."""

import asyncio
from typing import Any

import pytest

from activity_worker.activity import TaskRequest
from activity_worker.flows import Flow, FlowDefinition, FlowWorkers, JobState, LockMonitor, MonitorOptions, Queue
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_errors import RedisError
from tests.integration.flows.shop import SHOP
from tests.servers.redis import cluster_url, redis_cluster, redis_with_sentinels

#: All names have one hash tag, so that all keys of the flow are in one slot of a cluster.
TAGGED = FlowDefinition(
    "{shop}",
    (
        Queue("{shop}prepare", ("user",), next_queue="{shop}check", block_seconds=0.5),
        Queue("{shop}check", children=(Queue("stock", block_seconds=0.5),), block_seconds=0.5),
    ),
    lookup=("user",),
)


async def prepare(request: TaskRequest) -> dict[str, Any]:
    return {"children:{shop}check:params": [{"childName": "stock", "item": request.input["user"]}]}


async def in_stock(request: TaskRequest) -> dict[str, Any]:
    return {"done": True}


async def test_flow_with_one_hash_tag_works_on_a_cluster() -> None:
    with redis_cluster() as members:
        async with Flow.open(TAGGED, cluster_url(members)) as flow:
            workers = FlowWorkers(flow)
            workers.serve("{shop}prepare", prepare)
            workers.parents("{shop}check", check_seconds=0.05)
            workers.serve("{shop}check:stock", in_stock)
            async with workers:
                job_id = await flow.create({"user": 62})
                job = await flow.wait(job_id, timeout_seconds=20)
            assert (job.state, job.queue) == (JobState.COMPLETED, "{shop}check")
            assert [found.id for found in await flow.find("user", 62)] == [job_id]

            lost = await flow.create({"user": 1})
            await flow.client.call(
                "LMOVE", keys.waiting("{shop}prepare"), keys.processing("{shop}prepare"), "LEFT", "RIGHT"
            )
            queues = [(flow_queue.flow, flow_queue.name) for flow_queue in TAGGED.flow_queues()]
            monitor = LockMonitor(flow.client, queues, MonitorOptions(gap_seconds=5.0))
            await monitor.look(now=100.0)
            await monitor.look(now=105.0)
            assert (await flow.get(lost)).state is JobState.FAILED

        async with Flow.open(SHOP, cluster_url(members)) as flow:
            with pytest.raises(RedisError, match="give the flow and its queues one hash tag"):
                await flow.create({"user": 62})


async def test_waiting_client_sees_its_job_finished_after_a_failover() -> None:
    with redis_with_sentinels() as group:
        async with Flow.open(SHOP, group.url) as flow:
            job_id = await flow.create({"user": 62})
            async with asyncio.timeout(10):
                # A failover may lose writes that the replica does not have yet; here the replica must have them.
                await flow.client.call("WAIT", 1, 5000)
            waiting = asyncio.create_task(flow.wait(job_id, timeout_seconds=60))
            group.master.kill()
            workers = FlowWorkers(flow)
            workers.serve("prepare", sent)
            async with workers:
                job = await waiting

    assert (job.state, job.queue) == (JobState.FAILED, "prepare")


async def sent(request: TaskRequest) -> dict[str, Any]:
    raise ValueError("no paper left")
