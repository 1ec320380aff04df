"""The published package's flow; its parents and children run in worker processes like those of a pool."""

from typing import Any

from activity_worker.flows import Flow, JobState
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient
from tests.eventually import eventually
from tests.integration.flows.shop import FIELDS, PREPARED
from tests.integration.flows.worker_process import worker
from tests.peers.queues.peer import PeerFlow


async def test_worker_processes_serve_parents_and_children_of_their_flow(peer: PeerFlow, redis_url: str) -> None:
    async def prepare(job: dict[str, Any]) -> dict[str, Any]:
        return PREPARED

    async def send(job: dict[str, Any]) -> dict[str, Any]:
        return {"done": True}

    async def done() -> bool:
        return (await peer.find("user", 62))[0].get("done") is True

    await peer.workers("prepare", prepare)
    await peer.workers("send", send)
    await peer.create(FIELDS)
    parents = worker(
        *("activity_worker.flows.parent:wait_for_children", redis_url, "shop", "check"),
        *("--redis-next-queue", "send", "--redis-renew-lock", "true"),
    )
    children = worker(
        *("tests.integration.flows.handlers:in_stock", redis_url, "check:stock", "check:stock"),
        *("--redis-attributes", "item"),
    )
    async with parents, children:
        await eventually("the peer sees its job finished", done, seconds=30)

    (job,) = await peer.find("user", 62, children=True)
    assert job["completed-queue"] == "send"
    assert [(child["echo"], child["left"]) for child in job["children:check:jobs"]] == [("pen", 3), ({"id": 7}, 3)]


async def test_stopped_process_of_a_parent_gives_its_job_back(flow: Flow, client: RedisClient, redis_url: str) -> None:
    job_id = await flow.create({"user": 1, **PREPARED})
    await client.call("LMOVE", keys.waiting("prepare"), keys.waiting("check"), "LEFT", "RIGHT")
    parent = worker(
        *("activity_worker.flows.parent:wait_for_children", redis_url, "shop", "check"),
        *("--redis-renew-lock", "true", "--drain-timeout-seconds", "1"),
    )
    async with parent:
        await eventually("children wait", lambda: client.call("LLEN", keys.waiting("check:stock")), seconds=30)

    job = await flow.get(job_id, children=True)
    assert (job.state, job.queue, job.failure, len(job.children)) == (JobState.WAITING, "check", None, 2)
