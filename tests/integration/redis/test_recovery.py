"""The workers of a queue put back the jobs of dead workers, in turn, and never a job that another worker has."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from activity_worker.flows import LockMonitor, MonitorOptions
from activity_worker.flows.lost_locks import UnlockedJob
from activity_worker.flows.scripts import retry
from activity_worker.sources import redis_recovery
from activity_worker.sources.redis import RedisSource
from activity_worker.sources.redis_atomic import AtomicOperations
from activity_worker.sources.redis_job import JobLock, RedisQueue
from activity_worker.sources.redis_recovery import LOOKS, QueueRecovery, Recovered
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient, open_client
from activity_worker.wire.redis_errors import RedisError
from tests.eventually import eventually
from tests.integration.redis.proxy import proxy
from tests.integration.redis.queue import FLOW, QUEUE, create, monitor, source, whereabouts
from tests.servers.redis import RedisServer, redis_server

WAITING, PROCESSING = keys.waiting(QUEUE.name), keys.processing(QUEUE.name)
LOST = Recovered(put_back=("j1",))


async def take_unlocked(client: RedisClient) -> None:
    """Take the next job as a worker of the dialect that has not locked it yet."""
    assert await client.call("LMOVE", WAITING, PROCESSING, "LEFT", "RIGHT") is not None


@pytest.fixture
async def recovery(client: RedisClient) -> QueueRecovery:
    """Look for the lost jobs of a queue that has one."""
    await create(client)
    await take_unlocked(client)
    return QueueRecovery(client, QUEUE)


async def test_lost_job_waits_again_after_looks_in_a_row(client: RedisClient, recovery: QueueRecovery) -> None:
    assert [await recovery.look() for _ in range(LOOKS)] == [Recovered()] * (LOOKS - 1) + [LOST]

    found = await whereabouts(client)
    assert (found.waiting, found.processing, found.fields["retries:pack"]) == (1, 0, 1)


async def test_look_that_finds_a_lock_begins_again(client: RedisClient, recovery: QueueRecovery) -> None:
    for _ in range(LOOKS - 1):
        await recovery.look()
    await client.call("SET", keys.lock(QUEUE.name, "j1"), "worker")
    await recovery.look()
    await client.call("DEL", keys.lock(QUEUE.name, "j1"))

    assert [await recovery.look() for _ in range(LOOKS)] == [Recovered()] * (LOOKS - 1) + [LOST]


async def test_only_one_of_two_workers_looks_until_it_leaves(client: RedisClient, recovery: QueueRecovery) -> None:
    other = QueueRecovery(client, QUEUE)
    await recovery.look()

    assert await other.look() is None
    await recovery.stop()
    assert [await other.look() for _ in range(LOOKS - 1)][-1] == LOST, "it goes on where the first one left"


async def test_turn_of_a_silent_worker_ends(client: RedisClient, recovery: QueueRecovery) -> None:
    await recovery.look()

    assert 19_000 < await client.call("PTTL", keys.recovery_turn(QUEUE.name)) <= 20_000


async def test_job_put_back_by_a_monitor_is_not_taken_from_its_new_worker(
    client: RedisClient, recovery: QueueRecovery
) -> None:
    """A worker of the dialect has taken the job, and is about to lock it."""
    for _ in range(LOOKS - 1):
        await recovery.look()
    await monitor(client, requeue=9)
    await take_unlocked(client)

    assert await recovery.look() == Recovered()
    assert (await whereabouts(client)).processing == 1


@pytest.mark.parametrize("requeue", [9, 1], ids=["would put it back", "would fail it"])
async def test_second_monitor_leaves_a_job_to_its_new_worker(client: RedisClient, requeue: int) -> None:
    await create(client)
    await take_unlocked(client)
    first, second = (LockMonitor(client, [(FLOW, QUEUE.name)], MonitorOptions(requeue=most)) for most in (9, requeue))
    for one in (first, second):
        await one.look(0.0)
    assert await first.look(60.0) == [UnlockedJob(FLOW, QUEUE.name, "j1", "")]
    await take_unlocked(client)

    assert await second.look(60.0) == []
    found = await whereabouts(client)
    assert (found.processing, found.failed, found.fields["retries:pack"]) == (1, False, 1)


async def test_monitor_leaves_a_job_that_was_put_back_while_it_looked(client: RedisClient) -> None:
    """The other monitor puts the job back, and a worker takes it, after this one has read the lists and the locks."""
    await create(client)
    await take_unlocked(client)

    over = asyncio.Event()

    class Overtaken(RedisClient):
        async def call(self, *command: str | bytes | float) -> object:
            if command[0] == "EVAL" and not over.is_set():
                over.set()
                await monitor(client, requeue=9)
                await take_unlocked(client)
            return await super().call(*command)

    slow = Overtaken(client.url)
    await monitor(slow, requeue=9)
    await slow.close()

    found = await whereabouts(client)
    assert (found.processing, found.waiting, found.fields["retries:pack"]) == (1, 0, 1)


async def test_worker_of_a_pool_puts_a_lost_job_back_by_itself(
    server: RedisServer, client: RedisClient, atomic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_recovery, "LOOK_SECONDS", 0.02)
    await create(client)
    await take_unlocked(client)
    worker = RedisSource(open_client(server.url), QUEUE, atomic=atomic, owns_client=True, recovers=True)

    async def leased() -> bool:
        return await worker.lease("w") is not None

    await eventually("the lost job is leased", leased)
    await worker.close()
    assert await client.call("EXISTS", keys.recovery_turn(QUEUE.name)) == 0


async def test_worker_without_the_right_to_scripts_still_works(caplog: pytest.LogCaptureFixture) -> None:
    user = "w on >x ~queue:* ~lock:* ~job:* -@all +blmove +set +hmget +get +hset +multi +exec +rpush +lrem +del"
    with redis_server(users=[user]) as own:
        asking = open_client(own.url)
        await create(asking)
        url = own.url.replace("//", "//w:x@")
        worker = RedisSource(open_client(url), QUEUE, owns_client=True, recovers=True)
        recovery = worker._recovery
        assert recovery is not None
        recovery._jitter = lambda: 0.0
        task = await worker.lease("w")
        assert task is not None

        async def warned() -> bool:
            return f"the jobs of dead workers of queue {QUEUE.name}" in caplog.text and "NOPERM" in caplog.text

        await eventually("the worker says what it cannot do", warned)
        await worker.succeed(task.token, "{}")
        await worker.close()
        assert (await whereabouts(asking)).ended_once
        await asking.close()


@asynccontextmanager
async def waiting_workers(server: RedisServer, number: int, *, atomic: bool) -> AsyncIterator[list[list[str]]]:
    """Run workers that wait for a job; yield the commands of each."""
    queue = RedisQueue(FLOW, QUEUE.name, block_seconds=30)
    commands: list[list[str]] = []
    async with asyncio.TaskGroup() as group:
        workers: list[RedisSource] = []
        polls: list[asyncio.Task[object]] = []

        async def run() -> None:
            async with proxy(server.port) as way:
                commands.append(way.commands)
                worker = source(way.url, atomic=atomic, queue=queue)
                workers.append(worker)
                polls.append(asyncio.create_task(worker.lease("w")))
                await way.heard["BLMOVE"].wait()
                ready.release()
                await over.wait()
                polls[-1].cancel()
                await worker.close()

        ready, over = asyncio.Semaphore(0), asyncio.Event()
        for _ in range(number):
            group.create_task(run())
        for _ in range(number):
            await ready.acquire()
        yield commands
        over.set()


async def test_one_job_wakes_one_of_many_waiting_workers(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    async with waiting_workers(server, 10, atomic=atomic) as commands:
        before = [len(sent) for sent in commands]

        async def all_wait() -> bool:
            clients = await client.call("INFO", "clients")
            return "blocked_clients:10" in str(clients)

        await eventually("ten workers wait", all_wait)
        await create(client)

        async def locked() -> bool:
            return bool(await client.call("EXISTS", keys.lock(QUEUE.name, "j1")))

        await eventually("the job is locked", locked)
        assert "blocked_clients:9" in await client.call("INFO", "clients")
        awoken = [sent[count:] for sent, count in zip(commands, before, strict=True) if len(sent) > count]
        assert len(awoken) == 1


async def test_recovery_reads_no_list_while_another_worker_has_the_turn(
    server: RedisServer, client: RedisClient, recovery: QueueRecovery
) -> None:
    await recovery.look()
    await client.call("CONFIG", "RESETSTAT")
    for _ in range(20):
        assert await QueueRecovery(client, QUEUE).look() is None

    assert "cmdstat_lrange" not in await client.call("INFO", "commandstats")


async def test_job_stays_where_it_is_when_it_cannot_be_put_back(client: RedisClient, recovery: QueueRecovery) -> None:
    """The server undoes nothing of a script whose next command fails, here for a key of another type."""
    for _ in range(LOOKS - 1):
        await recovery.look()
    await client.call("SET", WAITING, "no list")
    with pytest.raises(RedisError, match="WRONGTYPE"):
        await recovery.look()
    assert await client.call("LRANGE", PROCESSING, 0, -1) == ["j1"]

    await client.call("DEL", WAITING)
    assert await recovery.look() == LOST
    assert (await whereabouts(client)).fields["retries:pack"] == 1


async def test_job_that_cannot_be_given_back_stays_with_its_lock(client: RedisClient) -> None:
    await create(client)
    operations = AtomicOperations(client, QUEUE)
    taken = await operations.take("worker")
    assert taken is not None
    await client.call("SET", WAITING, "no list")
    lease = JobLock(QUEUE.name, taken.job_id, taken.owner)
    with pytest.raises(RedisError, match="WRONGTYPE"):
        await operations.give_back(lease)
    assert await client.call("LRANGE", PROCESSING, 0, -1) == ["j1"]

    await client.call("DEL", WAITING)
    await operations.give_back(lease)
    assert await client.call("LRANGE", WAITING, 0, -1) == ["j1"]


async def test_job_that_left_is_not_given_back(client: RedisClient) -> None:
    await create(client)
    operations = AtomicOperations(client, QUEUE)
    taken = await operations.take("worker")
    assert taken is not None
    await client.call("DEL", PROCESSING)
    await operations.give_back(JobLock(QUEUE.name, taken.job_id, taken.owner))

    assert (await whereabouts(client)).waiting == 0


async def test_monitor_puts_back_a_job_whose_count_is_no_number(client: RedisClient, recovery: QueueRecovery) -> None:
    await client.call("HSET", keys.job(FLOW, "j1"), keys.retries(QUEUE.name), '"often"')
    await monitor(client, requeue=9)

    found = await whereabouts(client)
    assert (found.waiting, found.processing, found.fields["retries:pack"]) == (1, 0, 1)


async def test_failed_job_that_cannot_wait_again_stays_failed(client: RedisClient, recovery: QueueRecovery) -> None:
    await monitor(client)
    assert (await whereabouts(client)).failed
    await client.call("SET", WAITING, "no list")
    with pytest.raises(RedisError, match="WRONGTYPE"):
        await retry(client, FLOW, QUEUE.name, "j1")
    await client.call("DEL", WAITING)

    assert (await whereabouts(client)).failed
    assert await retry(client, FLOW, QUEUE.name, "j1")
    assert (await whereabouts(client)).waiting == 1
