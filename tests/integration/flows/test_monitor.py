"""Expired locks: the monitor fails or requeues abandoned jobs and leaves jobs alone that were taken just now."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from activity_worker.flows import Failure, Flow, JobState, LockMonitor, MonitorOptions
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient
from tests.eventually import eventually
from tests.integration.flows.shop import SHOP
from tests.peers.queues.peer import PeerFlow

QUEUES = [(flow_queue.flow, flow_queue.name) for flow_queue in SHOP.flow_queues()]
PREPARE = ("shop", "prepare")


@pytest.fixture
async def taken(client: RedisClient) -> Callable[[Flow], Awaitable[str]]:
    async def take(flow: Flow) -> str:
        """Make a job and take it like a worker that has not locked the job yet."""
        job_id = await flow.create({"user": 1})
        await client.call("LMOVE", keys.waiting("prepare"), keys.processing("prepare"), "LEFT", "RIGHT")
        return job_id

    return take


Taken = Callable[[Flow], Awaitable[str]]


def monitor(client: RedisClient, **options: Any) -> LockMonitor:
    return LockMonitor(client, QUEUES, MonitorOptions(**{"gap_seconds": 5.0, **options}))


async def test_job_without_its_lock_is_failed_with_the_dialects_error(
    flow: Flow, taken: Taken, client: RedisClient
) -> None:
    job_id = await taken(flow)
    looking = monitor(client)

    assert await looking.look(now=100.0) == []
    assert await looking.look(now=105.0) == [(*PREPARE, job_id, "")]

    stored = await client.call("HGETALL", keys.job("shop", job_id))
    assert dict(zip(stored[::2], stored[1::2], strict=True)) == {
        "user": "1",
        "done": "true",
        "failed": "true",
        "failedQueue": '"prepare"',
        "failedErrorMsg": '"prepare lock time exceeded"',
    }
    job = await flow.get(job_id)
    assert (job.state, job.failure) == (JobState.FAILED, Failure("prepare lock time exceeded", "prepare"))
    assert await flow.lengths() == dict.fromkeys(("prepare", "check", "check:stock", "send"), (0, 0))
    assert looking.failed == 1


async def test_job_that_was_just_taken_is_left_alone(flow: Flow, taken: Taken, client: RedisClient) -> None:
    job_id = await taken(flow)
    looking = monitor(client)

    assert await looking.look(now=100.0) == []
    assert await looking.look(now=104.9) == []
    assert (await flow.get(job_id)).state is JobState.PROCESSING


async def test_worker_that_locks_before_the_monitor_acts_keeps_its_job(
    flow: Flow, taken: Taken, client: RedisClient
) -> None:
    job_id = await taken(flow)
    locked = asyncio.Event()

    class LockedMeanwhile(RedisClient):
        """A client that lets the worker lock the job after the monitor has read it, before the monitor acts."""

        async def call(self, *command: Any) -> Any:
            if command[0] in {"EVAL", "EVALSHA"}:
                await client.call("SET", keys.lock("prepare", job_id), "worker", "EX", 60)
                locked.set()
            return await super().call(*command)

    slow = LockedMeanwhile(client.url)
    looking = LockMonitor(slow, QUEUES, MonitorOptions(gap_seconds=5.0, requeue=1))
    await looking.look(now=100.0)
    assert await looking.look(now=105.0) == []
    await slow.close()

    assert locked.is_set()
    assert (await flow.get(job_id)).state is JobState.PROCESSING


async def test_job_completed_before_the_monitor_acts_is_not_failed(
    flow: Flow, taken: Taken, client: RedisClient
) -> None:
    job_id = await taken(flow)

    class CompletedMeanwhile(RedisClient):
        async def call(self, *command: Any) -> Any:
            if command[0] in {"EVAL", "EVALSHA"}:
                await client.call("HSET", keys.job("shop", job_id), keys.COMPLETED_QUEUE, '"prepare"')
                await client.call("LREM", keys.processing("prepare"), 1, job_id)
            return await super().call(*command)

    slow = CompletedMeanwhile(client.url)
    looking = LockMonitor(slow, QUEUES, MonitorOptions(gap_seconds=5.0, requeue=1))
    await looking.look(now=100.0)
    assert await looking.look(now=105.0) == []
    await slow.close()

    assert (await flow.get(job_id)).state is JobState.COMPLETED


async def test_two_monitors_fail_a_job_once(flow: Flow, taken: Taken, client: RedisClient) -> None:
    await taken(flow)
    both = [monitor(client), monitor(client)]
    for looking in both:
        await looking.look(now=100.0)

    await asyncio.gather(*(looking.look(now=105.0) for looking in both))

    assert sum(looking.failed for looking in both) == 1


async def test_deleted_job_is_removed_from_its_list_and_not_recreated(
    flow: Flow, taken: Taken, client: RedisClient
) -> None:
    job_id = await taken(flow)
    await client.call("DEL", keys.job("shop", job_id))
    looking = monitor(client, requeue=3)

    await looking.look(now=100.0)
    await looking.look(now=105.0)

    assert await client.call("KEYS", "*") == ["job:shop:user:1"]


async def test_error_recorded_by_a_dead_worker_is_kept(flow: Flow, taken: Taken, client: RedisClient) -> None:
    job_id = await taken(flow)
    fields = keys.pairs(keys.failure("prepare", "no paper left"))
    await client.call("HSET", keys.job("shop", job_id), *fields)
    looking = monitor(client, requeue=3)

    await looking.look(now=100.0)
    await looking.look(now=105.0)

    assert (await flow.get(job_id)).failure == Failure("no paper left", "prepare")
    assert (await flow.lengths())["prepare"] == (0, 0)


async def test_job_is_requeued_as_often_as_configured_and_then_failed(
    flow: Flow, taken: Taken, client: RedisClient
) -> None:
    job_id = await taken(flow)
    looking = monitor(client, requeue=2)

    for now, state in ((100.0, JobState.WAITING), (110.0, JobState.WAITING), (120.0, JobState.FAILED)):
        await looking.look(now)
        await looking.look(now + 5.0)
        job = await flow.get(job_id)
        assert (job.state, job.queue) == (state, "prepare")
        await client.call("LMOVE", keys.waiting("prepare"), keys.processing("prepare"), "LEFT", "RIGHT")

    assert (looking.requeued, looking.failed) == (2, 1)
    assert (await flow.get(job_id)).fields["retries:prepare"] == 2


async def test_requeued_and_retaken_job_is_observed_from_the_start(
    flow: Flow, taken: Taken, client: RedisClient
) -> None:
    job_id = await taken(flow)
    looking = monitor(client, requeue=9)
    await looking.look(100.0)
    await looking.look(105.0)
    await client.call("LMOVE", keys.waiting("prepare"), keys.processing("prepare"), "LEFT", "RIGHT")

    assert await looking.look(105.5) == []
    assert await looking.look(110.4) == []
    assert (await flow.get(job_id)).state is JobState.PROCESSING


async def test_their_parent_continues_after_a_lost_child(flow: Flow, peer: PeerFlow, client: RedisClient) -> None:
    await peer.parents("check")
    job_id = await flow.create({"user": 1, "children:check:params": [{"childName": "stock", "item": 1}]})
    await client.call("LMOVE", keys.waiting("prepare"), keys.waiting("check"), "LEFT", "RIGHT")
    waiting = keys.waiting("check:stock")
    await eventually("a child waits", lambda: client.call("LLEN", waiting))
    await client.call("LMOVE", waiting, keys.processing("check:stock"), "LEFT", "RIGHT")

    looking = monitor(client)
    await looking.look(now=100.0)
    await looking.look(now=105.0)

    async def arrived() -> bool:
        return (await flow.get(job_id)).queue == "send"

    await eventually("the parent has gone on", arrived)
    (child,) = (await flow.get(job_id, children=True)).children
    assert child.failure == Failure("check:stock lock time exceeded", "check:stock")


async def test_monitor_runs_until_it_is_stopped(flow: Flow, taken: Taken, client: RedisClient) -> None:
    job_id = await taken(flow)
    looking = monitor(client, look_seconds=0.01, gap_seconds=0.05)
    running = asyncio.create_task(looking.run())

    job = await flow.wait(job_id, timeout_seconds=10)
    looking.stop()
    await asyncio.wait_for(running, 5)

    assert job.state is JobState.FAILED
