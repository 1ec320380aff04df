"""The package's flow makes jobs and our workers run them: it sees results, failures and children as usual."""

import asyncio
from itertools import pairwise
from typing import Any

from activity_worker.activity import TaskRequest
from activity_worker.flows import Flow, FlowDefinition, FlowWorkers, JobState, Queue
from activity_worker.runtime.lifecycle import SlotStatus
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient
from tests.eventually import eventually
from tests.integration.flows.shop import FIELDS, PREPARED
from tests.peers.queues.peer import PeerFlow


async def prepare(request: TaskRequest) -> dict[str, Any]:
    return PREPARED


async def in_stock(request: TaskRequest) -> dict[str, Any]:
    return {"done": True, "left": 3}


async def send(request: TaskRequest) -> dict[str, Any]:
    return {"done": True, "tracking": f"T-{request.input['sum']}"}


async def finished(peer: PeerFlow, user: int) -> dict[str, Any]:
    """Wait until the peer sees its job finished; return the job with its children."""

    async def done() -> bool:
        return (await peer.find("user", user))[0].get("done") is True

    await eventually("the peer sees its job finished", done)
    (job,) = await peer.find("user", user, children=True)
    return job


async def test_their_job_passes_our_workers_with_children_and_results(flow: Flow, peer: PeerFlow) -> None:
    workers = FlowWorkers(flow)
    workers.serve("prepare", prepare)
    workers.parents("check", check_seconds=0.05)
    workers.serve("check:stock", in_stock, count=2)
    workers.serve("send", send)

    async with workers:
        job_id = await peer.create(FIELDS, "c-1")
        job = await finished(peer, 62)

    children = job.pop("children:check:jobs")
    assert job == {
        "id": job_id,
        **FIELDS,
        **PREPARED,
        "correlationId": "c-1",
        "tracking": "T-124",
        "done": True,
        "completed-queue": "send",
    }
    assert [{**child, "id": ""} for child in children] == [
        {"id": "", "item": item, "done": True, "left": 3, "completed-queue": "check:stock"}
        for item in ("pen", {"id": 7})
    ]


async def test_our_worker_gets_the_job_as_their_worker_would(flow: Flow, peer: PeerFlow) -> None:
    jobs = []

    async def note(request: TaskRequest) -> dict[str, Any]:
        jobs.append(request.input)
        return {"done": True, "nextQueue": "send"}

    workers = FlowWorkers(flow)
    workers.serve("prepare", note)
    async with workers:
        job_id = await peer.create(FIELDS)
        await finished(peer, 62)

    assert jobs == [{"id": job_id, "user": 62, "absent": None}]
    assert await flow.lengths(["check", "send"]) == {"check": (0, 0), "send": (1, 0)}


async def test_their_flow_sees_our_failure_in_its_own_form(flow: Flow, peer: PeerFlow) -> None:
    async def fail(request: TaskRequest) -> None:
        raise ValueError("no paper left, \u00e9")

    workers = FlowWorkers(flow)
    workers.serve("prepare", fail)
    async with workers:
        job_id = await peer.create({"user": 62})
        job = await finished(peer, 62)

    assert job == {
        "id": job_id,
        "user": 62,
        "done": True,
        "failed": True,
        "failedQueue": "prepare",
        "failedErrorMsg": "no paper left, \u00e9",
    }
    assert await flow.lengths(["prepare", "check"]) == {"prepare": (0, 0), "check": (0, 0)}


async def test_their_parent_waits_for_children_of_ours(flow: Flow, peer: PeerFlow) -> None:
    go_on = asyncio.Event()

    async def slow(request: TaskRequest) -> dict[str, Any]:
        await go_on.wait()
        return {"done": True}

    workers = FlowWorkers(flow)
    workers.serve("prepare", prepare)
    workers.serve("check:stock", slow, count=2)
    workers.serve("send", send)
    async with workers:
        await peer.parents("check")
        job_id = await peer.create(FIELDS)
        await eventually("both children are under way", lambda: _under_way(flow, "check:stock", 2))
        assert (await flow.get(job_id)).queue == "check"
        go_on.set()
        job = await finished(peer, 62)

    assert [child["done"] for child in job["children:check:jobs"]] == [True, True]


async def test_our_parent_waits_for_children_of_theirs(flow: Flow, peer: PeerFlow) -> None:
    go_on = asyncio.Event()

    async def slow(job: dict[str, Any]) -> dict[str, Any]:
        await go_on.wait()
        return {"done": True}

    workers = FlowWorkers(flow)
    workers.serve("prepare", prepare)
    workers.parents("check", check_seconds=0.05)
    workers.serve("send", send)
    async with workers:
        await peer.children("check", "stock", slow, 2)
        job_id = await peer.create(FIELDS)
        await eventually("both children are under way", lambda: _under_way(flow, "check:stock", 2))
        assert (await flow.get(job_id)).queue == "check"
        go_on.set()
        job = await finished(peer, 62)

    assert [child["done"] for child in job["children:check:jobs"]] == [True, True]


async def test_our_parent_continues_after_a_child_failed_by_their_monitor(
    flow: Flow, peer: PeerFlow, client: RedisClient
) -> None:
    workers = FlowWorkers(flow)
    workers.serve("prepare", prepare)
    workers.parents("check", check_seconds=0.05)
    workers.serve("send", send)
    async with workers:
        job_id = await peer.create(FIELDS)
        waiting = keys.waiting("check:stock")
        await eventually("children wait", lambda: client.call("LLEN", waiting))
        for _ in range(2):
            await client.call("LMOVE", waiting, keys.processing("check:stock"), "LEFT", "RIGHT")
        await peer.monitor("check:stock", ["check:stock"])
        await finished(peer, 62)

    (first, second) = (await flow.get(job_id, children=True)).children
    assert first.fields["done"] == second.fields["done"] == "true"
    assert first.failure is not None
    assert first.failure.message == "check:stock lock time exceeded"


async def test_our_parent_fails_when_a_child_is_deleted(flow: Flow, client: RedisClient) -> None:
    workers = FlowWorkers(flow)
    workers.serve("prepare", prepare)
    workers.parents("check", check_seconds=0.05)
    async with workers:
        job_id = await flow.create(FIELDS)
        await eventually("children wait", lambda: client.call("LLEN", keys.waiting("check:stock")))
        first, _ = (await flow.get(job_id, children=True)).children
        await client.call("DEL", keys.job("check:stock", first.id))
        job = await flow.wait(job_id, timeout_seconds=10)

    assert job.failure is not None
    assert job.failure.message.startswith(f"job:check:stock:{first.id}: a child that is gone")


async def test_requeued_parent_waits_for_its_existing_children(flow: Flow, client: RedisClient) -> None:
    workers = FlowWorkers(flow)
    workers.parents("check", check_seconds=0.05)
    job_id = await flow.create({"user": 1, **PREPARED})
    await client.call("LMOVE", keys.waiting("prepare"), keys.waiting("check"), "LEFT", "RIGHT")
    made = ["job:check:stock:1"]
    await client.call("HSET", "job:check:stock:1", "done", "true")
    await client.call("HSET", keys.job("shop", job_id), *keys.pairs({"children:check:jobs": made}))

    async with workers:
        await eventually(
            "the parent continues", lambda: client.call("HGET", keys.job("shop", job_id), keys.COMPLETED_QUEUE)
        )

    assert (await flow.get(job_id)).child_keys() == made
    assert await flow.lengths(["check:stock"]) == {"check:stock": (0, 0)}


async def test_parent_of_a_stopped_worker_is_returned_and_continues_later(flow: Flow, client: RedisClient) -> None:
    workers = FlowWorkers(flow)
    workers.parents("check", check_seconds=0.05)
    job_id = await flow.create({"user": 1, **PREPARED})
    await client.call("LMOVE", keys.waiting("prepare"), keys.waiting("check"), "LEFT", "RIGHT")
    await workers.start()
    await eventually("children wait", lambda: client.call("LLEN", keys.waiting("check:stock")))

    await workers.stop(timeout_seconds=0.1)

    job = await flow.get(job_id, children=True)
    assert (job.state, job.queue, job.failure) == (JobState.WAITING, "check", None)
    assert await client.call("EXISTS", keys.lock("check", job_id)) == 0
    for child in job.children:
        await client.call("HSET", keys.job("check:stock", child.id), "done", "true")
    async with workers:
        await eventually(
            "the parent continues", lambda: client.call("HGET", keys.job("shop", job_id), keys.COMPLETED_QUEUE)
        )
    assert (await flow.get(job_id)).child_keys() == job.child_keys()


async def test_our_parent_renews_its_lock_while_it_waits(client: RedisClient) -> None:
    check = Queue("check", children=(Queue("stock"),), lock_seconds=9, block_seconds=0.2)
    flow = Flow(FlowDefinition("shop", (check,)), client)
    workers = FlowWorkers(flow)
    workers.parents("check", check_seconds=0.05)
    job_id = await flow.create({"children:check:params": [{"childName": "stock", "item": 1}]})
    left = [0]

    async def renewed() -> bool:
        left.append(await client.call("PTTL", keys.lock("check", job_id)))
        return sum(later > earlier for earlier, later in pairwise(left)) == 5

    async with workers:
        # The lock was set once and renewed four times, three seconds apart: the handler's deadline, here nine seconds,
        # does not apply to waiting parents.
        await eventually("the lock is prolonged", renewed, seconds=60)
        (child,) = (await flow.get(job_id, children=True)).children
        await client.call("HSET", keys.job("check:stock", child.id), "done", "true")
        job = await flow.wait(job_id, timeout_seconds=20)

    assert job.failure is None


async def test_stopped_workers_can_be_started_again(flow: Flow, peer: PeerFlow) -> None:
    working, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: TaskRequest) -> dict[str, Any]:
        working.set()
        await go_on.wait()
        return {"done": True, "nextQueue": "send"}

    workers = FlowWorkers(flow)
    workers.serve("prepare", slow)
    seen = [workers.status]
    await workers.start()
    seen.append(workers.status)

    await peer.create({"user": 1})
    await peer.create({"user": 2})
    await working.wait()
    stopping = asyncio.create_task(workers.stop())
    await eventually("the workers stop", lambda: _is(workers, SlotStatus.STOPPING))
    go_on.set()
    await stopping
    seen.append(workers.status)
    assert seen == [SlotStatus.READY, SlotStatus.RUNNING, SlotStatus.STOPPED]
    # The running job was finished, the other one was not started.
    assert await flow.lengths(["prepare", "send"]) == {"prepare": (1, 0), "send": (1, 0)}

    async with workers:
        await finished(peer, 2)
    assert await flow.lengths(["prepare", "send"]) == {"prepare": (0, 0), "send": (2, 0)}


async def _under_way(flow: Flow, queue: str, count: int) -> bool:
    return (await flow.lengths([queue]))[queue] == (0, count)


async def _is(workers: FlowWorkers, status: SlotStatus) -> bool:
    return workers.status is status
