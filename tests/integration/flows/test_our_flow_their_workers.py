"""Our flow makes jobs and the package's workers run them: our flow sees their positions and results."""

import asyncio
from typing import Any

import pytest

from activity_worker.flows import Failure, Flow, FlowError, JobState
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient
from tests.eventually import eventually
from tests.integration.flows.shop import FIELDS, PREPARED
from tests.peers.queues.peer import PeerFlow


async def prepared(job: dict[str, Any]) -> dict[str, Any]:
    return PREPARED


async def in_stock(job: dict[str, Any]) -> dict[str, Any]:
    return {"done": True, "left": 3}


async def sent(job: dict[str, Any]) -> dict[str, Any]:
    return {"done": True, "tracking": f"T-{job['sum']}"}


async def test_job_passes_all_queues_with_children_and_results_are_seen(flow: Flow, peer: PeerFlow) -> None:
    await peer.workers("prepare", prepared)
    await peer.parents("check")
    await peer.children("check", "stock", in_stock, 2)
    await peer.workers("send", sent)

    job_id = await flow.create(FIELDS, correlation_id="c-1")
    job = await flow.wait(job_id, timeout_seconds=20)

    assert (job.state, job.queue, job.done, job.failure) == (JobState.COMPLETED, "send", True, None)
    children = job.fields["children:check:jobs"]
    assert job.data == {
        **FIELDS,
        **PREPARED,
        "correlationId": "c-1",
        "children:check:jobs": children,
        "tracking": "T-124",
    }
    children = (await flow.get(job_id, children=True)).children
    assert [(child.flow, child.state, child.data) for child in children] == [
        ("check:stock", JobState.COMPLETED, {"item": "pen", "left": 3}),
        ("check:stock", JobState.COMPLETED, {"item": {"id": 7}, "left": 3}),
    ]


async def test_worker_gets_its_queues_attributes_and_null_for_absent_ones(flow: Flow, peer: PeerFlow) -> None:
    jobs: list[dict[str, Any]] = []

    async def note(job: dict[str, Any]) -> dict[str, Any]:
        jobs.append(job)
        return {"nextQueue": "send"}

    await peer.workers("prepare", note)
    await peer.workers("send", sent)

    job_id = await flow.create({**FIELDS, "sum": 1})
    await flow.wait(job_id, timeout_seconds=20)

    assert jobs == [{"id": job_id, "user": 62, "absent": None}]


async def test_position_of_a_job_is_seen(flow: Flow, peer: PeerFlow) -> None:
    working, go_on = asyncio.Event(), asyncio.Event()

    async def slow(job: dict[str, Any]) -> dict[str, Any]:
        working.set()
        await go_on.wait()
        return {"nextQueue": "send"}

    job_id = await flow.create(FIELDS)
    seen = await flow.get(job_id)
    assert (seen.state, seen.queue) == (JobState.WAITING, "prepare")
    assert (await flow.lengths())["prepare"] == (1, 0)

    await peer.workers("prepare", slow)
    await working.wait()
    seen = await flow.get(job_id)
    assert (seen.state, seen.queue) == (JobState.PROCESSING, "prepare")
    assert (await flow.lengths())["prepare"] == (0, 1)
    with pytest.raises(TimeoutError, match=f"job {job_id} of flow shop: not finished in 0.05 s"):
        await flow.wait(job_id, timeout_seconds=0.05, look_seconds=0.01)

    go_on.set()

    async def sent_on() -> bool:
        seen = await flow.get(job_id)
        return (seen.state, seen.queue) == (JobState.WAITING, "send")

    await eventually("the job waits in the next queue", sent_on)


async def test_failure_of_their_worker_is_seen_and_retried(flow: Flow, peer: PeerFlow) -> None:
    tries: list[str] = []

    async def once_bitten(job: dict[str, Any]) -> dict[str, Any]:
        tries.append(job["id"])
        if len(tries) == 1:
            raise ValueError("no paper left")
        return {"nextQueue": "send"}

    await peer.workers("prepare", once_bitten)
    await peer.workers("send", sent)
    job_id = await flow.create({**FIELDS, "sum": 5})

    failed = await flow.wait(job_id, timeout_seconds=20)
    assert (failed.state, failed.queue, failed.done) == (JobState.FAILED, "prepare", True)
    assert failed.failure == Failure("no paper left", "prepare")

    assert await flow.retry(job_id) == "prepare"
    job = await flow.wait(job_id, timeout_seconds=20)
    assert (job.state, job.failure, job.fields["tracking"]) == (JobState.COMPLETED, None, "T-5")
    assert tries == [job_id, job_id]


async def test_only_one_of_many_concurrent_retries_succeeds(flow: Flow, client: RedisClient) -> None:
    job_id = await flow.create({"user": 1})
    await client.call("LMOVE", keys.waiting("prepare"), keys.processing("prepare"), "LEFT", "RIGHT")
    await client.call("SET", keys.lock("prepare", job_id), "a worker that is gone")
    await client.call("HSET", keys.job("shop", job_id), *keys.pairs(keys.failure("prepare", "no paper left")))

    found = await asyncio.gather(*(flow.retry(job_id) for _ in range(5)), return_exceptions=True)

    assert "prepare" in found
    assert sum(isinstance(one, FlowError) for one in found) == 4
    assert (await flow.lengths())["prepare"] == (1, 0)
    assert await client.call("EXISTS", keys.lock("prepare", job_id)) == 0
    assert (await flow.get(job_id)).fields == {"user": 1}


async def test_both_find_a_job_by_its_attributes(flow: Flow, peer: PeerFlow, client: RedisClient) -> None:
    first = await flow.create({"user": 1, "tags": ["x", 2]})
    second = await flow.create({"user": 1, "tags": ["x"]})

    for attribute, value, ids in (("user", 1, [first, second]), ("tags", "x", [first, second]), ("tags", 2, [first])):
        assert [job.id for job in await flow.find(attribute, value)] == ids
        assert [job["id"] for job in await peer.find(attribute, value)] == ids
    assert await flow.find("user", 2) == []

    await client.call("DEL", keys.job("shop", first))
    assert [job.id for job in await flow.find("user", 1)] == [second]


async def test_job_deleted_by_us_is_gone_for_their_flow_and_workers(
    flow: Flow, peer: PeerFlow, client: RedisClient
) -> None:
    job_id = await flow.create({"user": 1, "tags": ["x"]})
    await client.call("SET", keys.lock("prepare", job_id), "a worker that is gone")

    assert await flow.delete(job_id)
    assert not await flow.delete(job_id)
    assert await peer.find("user", 1) == []
    assert (await flow.get(job_id)).state is JobState.MISSING
    assert await client.call("KEYS", "*") == []
