"""The exact bytes that a worker reads and writes, and the commands that it sends."""

import asyncio
import json

import pytest

from activity_worker.activity import TaskRequest
from activity_worker.contract import LeasedTask
from activity_worker.errors import LeaseLostError, SourceError
from activity_worker.runtime.options import TaskOptions
from activity_worker.runtime.slot import Slot
from activity_worker.sources.redis import RedisSource
from activity_worker.sources.redis_job import RedisQueue
from activity_worker.wire.redis_connection import RedisClient, open_client
from activity_worker.wire.redis_limits import RedisLimits
from tests.integration.redis.proxy import proxy
from tests.integration.redis.queue import QUEUE, create, recover, source, whereabouts
from tests.servers.redis import RedisServer


async def _leased(worker: RedisSource) -> tuple[RedisSource, LeasedTask]:
    """Return a worker and the job that it has leased."""
    task = await worker.lease("w")
    assert task is not None
    return worker, task


async def _hash(client: RedisClient, key: str = "job:shop:j1") -> dict[str, str]:
    stored = await client.call("HGETALL", key)
    return dict(zip(stored[::2], stored[1::2], strict=True))


async def test_job_has_its_id_and_the_attributes_that_the_queue_wants(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    await create(client, order={"n": 1.5, "names": ["é", '"']}, secret="not asked for")
    worker = source(server.url, atomic=atomic)

    task = await worker.lease("w")

    assert task is not None
    assert json.loads(task.input) == {"id": "j1", "order": {"n": 1.5, "names": ["é", '"']}, "absent": None}
    assert await client.call("LRANGE", "queue:pack:processing", 0, -1) == ["j1"]
    assert 59 <= await client.call("TTL", "lock:pack:j1") <= 61
    assert (await client.call("GET", "lock:pack:j1")).startswith("w:")
    await worker.close()


async def test_jobs_are_leased_in_the_order_of_arrival(server: RedisServer, client: RedisClient, atomic: bool) -> None:
    for job_id in ("a", "b", "c"):
        await create(client, job_id)
    worker = source(server.url, atomic=atomic)

    taken = [json.loads(task.input)["id"] for _ in range(3) if (task := await worker.lease("w"))]

    assert taken == ["a", "b", "c"]
    assert await client.call("LRANGE", "queue:pack:processing", 0, -1) == ["a", "b", "c"]
    await worker.close()


async def test_result_is_saved_as_json_by_field_and_the_job_passed_on(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    await create(client)
    worker, task = await _leased(source(server.url, atomic=atomic))

    await worker.succeed(task.token, '{"weight":1.5,"name":"é","none":null,"list":[1,{"a":true}],"nextQueue":""}')

    assert await _hash(client) == {
        "order": '{"n":1}',
        "weight": "1.5",
        "name": '"é"',
        "none": "null",
        "list": '[1,{"a":true}]',
        "completed-queue": '"pack"',
    }
    assert (await whereabouts(client)).ended_once
    await worker.close()


async def test_result_may_choose_the_next_queue(server: RedisServer, client: RedisClient, atomic: bool) -> None:
    await create(client)
    worker, task = await _leased(source(server.url, atomic=atomic))

    await worker.succeed(task.token, '{"nextQueue":"elsewhere"}')

    assert await client.call("LRANGE", "queue:elsewhere:waiting", 0, -1) == ["j1"]
    assert await client.call("EXISTS", "queue:send:waiting") == 0
    assert "nextQueue" not in await _hash(client)
    await worker.close()


async def test_job_without_a_next_queue_is_finished(server: RedisServer, client: RedisClient, atomic: bool) -> None:
    await create(client)
    worker, task = await _leased(
        source(server.url, atomic=atomic, queue=RedisQueue("shop", "pack", block_seconds=0.02))
    )

    await worker.succeed(task.token, "null")

    assert sorted(await client.call("KEYS", "*")) == ["job:shop:j1"]
    assert (await _hash(client))["completed-queue"] == '"pack"'
    await worker.close()


async def test_failure_is_recorded_as_documented_and_unlocks_the_job(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    await create(client)
    worker, task = await _leased(source(server.url, atomic=atomic))

    await worker.fail(task.token, "ValueError", "no boxes\n\nTraceback (most recent call last):\n  File ...")

    assert await _hash(client) == {
        "order": '{"n":1}',
        "done": "true",
        "failed": "true",
        "failedQueue": '"pack"',
        "failedErrorMsg": '"no boxes"',
    }
    assert sorted(await client.call("KEYS", "*")) == ["job:shop:j1"]
    await worker.close()


async def test_commands_are_the_documented_ones(server: RedisServer, client: RedisClient) -> None:
    await create(client)
    async with proxy(server.port) as way:
        worker = source(way.url, atomic=False)
        task = await worker.lease("w")
        assert task is not None
        await worker.succeed(task.token, "{}")
        await worker.close()

    assert way.commands == ["BLMOVE", "SET", "HMGET", "GET", "HSET", "MULTI", "RPUSH", "LREM", "DEL", "EXEC"]


@pytest.mark.parametrize(
    ("output", "words"),
    [('"text"', "a JSON object"), ("[1]", "a JSON object"), ('{"nextQueue": 7}', "the name of a queue")],
)
async def test_invalid_result_is_refused_with_a_message_and_changes_nothing(
    server: RedisServer, client: RedisClient, atomic: bool, output: str, words: str
) -> None:
    await create(client)
    worker, task = await _leased(source(server.url, atomic=atomic))
    before = await whereabouts(client)

    with pytest.raises(SourceError, match=words) as refused:
        await worker.succeed(task.token, output)

    assert not refused.value.retryable
    assert await whereabouts(client) == before
    await worker.close()


async def test_lost_job_is_removed_from_the_next_queue_that_it_was_sent_to(
    server: RedisServer, client: RedisClient
) -> None:
    """The original implementation removes it from the queue's default next queue, although the result chose another."""
    await create(client)
    worker = source(server.url, atomic=False)
    task = await worker.lease("w")
    assert task is not None
    await client.call("LREM", "queue:pack:processing", 0, "j1")
    await client.call("RPUSH", "queue:send:waiting", "j1")

    with pytest.raises(LeaseLostError):
        await worker.succeed(task.token, '{"nextQueue":"elsewhere"}')

    assert await client.call("EXISTS", "queue:elsewhere:waiting") == 0
    assert await client.call("LRANGE", "queue:send:waiting", 0, -1) == ["j1"]
    await worker.close()


async def test_worker_without_its_lock_changes_nothing(server: RedisServer, client: RedisClient, atomic: bool) -> None:
    for owner in (None, "another"):
        await client.call("FLUSHALL")
        await create(client)
        worker = source(server.url, atomic=atomic)
        task = await worker.lease("w")
        assert task is not None
        await client.call("DEL", "lock:pack:j1")
        if owner is not None:
            await client.call("SET", "lock:pack:j1", owner)
        before = await whereabouts(client)

        with pytest.raises(LeaseLostError):
            await worker.heartbeat(task.token)
        with pytest.raises(LeaseLostError):
            await worker.succeed(task.token, '{"a":1}')
        if owner is not None:
            with pytest.raises(LeaseLostError):
                await worker.fail(task.token, "E", "m")

        assert await whereabouts(client) == before
        await worker.close()


async def test_heartbeat_renews_the_lock_only_if_the_queue_asks_for_it(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    for renew, least in ((False, 0), (True, 59)):
        await client.call("FLUSHALL")
        await create(client)
        worker = source(server.url, atomic=atomic, queue=RedisQueue("shop", "pack", renew_lock=renew, lock_seconds=60))
        task = await worker.lease("w")
        assert task is not None
        await client.call("EXPIRE", "lock:pack:j1", 9)

        await worker.heartbeat(task.token)

        assert least <= await client.call("TTL", "lock:pack:j1") <= (61 if renew else 9)
        await worker.close()


async def test_heartbeat_does_not_renew_another_workers_lock(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    await create(client)
    worker, task = await _leased(source(server.url, atomic=atomic, queue=RedisQueue("shop", "pack", renew_lock=True)))
    await client.call("SET", "lock:pack:j1", "another", "EX", 9)

    with pytest.raises(LeaseLostError):
        await worker.heartbeat(task.token)

    assert await client.call("TTL", "lock:pack:j1") <= 9
    await worker.close()


async def test_late_answer_is_refused_although_its_worker_has_the_job_again(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    await create(client)
    worker = source(server.url, atomic=atomic)
    early = await worker.lease("w")
    await client.pipeline(
        [("DEL", "lock:pack:j1"), ("LMOVE", "queue:pack:processing", "queue:pack:waiting", "LEFT", "LEFT")]
    )
    late = await worker.lease("w")
    assert early is not None
    assert late is not None

    with pytest.raises(LeaseLostError):
        await worker.succeed(early.token, '{"by":"early"}')
    await worker.succeed(late.token, '{"by":"late"}')

    assert (await whereabouts(client)).fields["by"] == "late"
    await worker.close()


async def test_cancelled_poll_gives_its_job_back(server: RedisServer, client: RedisClient, atomic: bool) -> None:
    """The job is at the front again and unlocked, as if it had never been leased."""
    queue = RedisQueue("shop", "pack", block_seconds=5)
    async with proxy(server.port) as way:
        worker = source(way.url, atomic=atomic, queue=queue)
        polling = asyncio.create_task(worker.lease("w"))
        await way.heard["BLMOVE"].wait()
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        await client.pipeline([("RPUSH", "queue:pack:waiting", "j1"), ("RPUSH", "queue:pack:waiting", "j2")])
        await worker.close()

    assert await client.call("LRANGE", "queue:pack:waiting", 0, -1) == ["j1", "j2"]
    assert await client.call("KEYS", "*") == ["queue:pack:waiting"]


async def test_handler_beyond_the_locks_time_fails_with_the_dialects_error(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    async def for_ever(request: TaskRequest) -> None:
        await asyncio.Event().wait()

    await create(client)
    queue = RedisQueue("shop", "pack", lock_seconds=1, block_seconds=0.02)
    worker = source(server.url, atomic=atomic, queue=queue)
    await Slot(worker, for_ever, options=TaskOptions(deadline_seconds=1.0)).run_once()

    assert (await whereabouts(client)).fields["failedErrorMsg"] == "Execution timeout of 1 seconds exceeded"
    assert (await whereabouts(client)).ended_once
    await worker.close()


async def test_lost_lock_cancels_the_handler_and_leaves_the_job_alone(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def for_ever(request: TaskRequest) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await create(client)
    worker = source(server.url, atomic=atomic)
    at_work = asyncio.create_task(Slot(worker, for_ever, options=TaskOptions(heartbeat_seconds=0.05)).run_once())
    await began.wait()
    await client.call("SET", "lock:pack:j1", "another")

    await asyncio.wait_for(ended.wait(), 10)
    await at_work
    found = await whereabouts(client)
    assert (found.processing, found.lock, found.fields) == (1, "another", {"order": {"n": 1}})
    await worker.close()


async def test_attribute_that_is_not_json_fails_the_job_with_the_reason(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    async def never(request: TaskRequest) -> None:
        raise AssertionError("it was called")

    await create(client)
    await client.call("HSET", "job:shop:j1", "order", "not json")
    worker = source(server.url, atomic=atomic)
    await Slot(worker, never).run_once()

    found = await client.call("HGET", "job:shop:j1", "failedErrorMsg")
    assert found == '"an attribute of the job is not JSON"'
    await worker.close()


async def test_job_that_is_too_large_for_a_worker_fails_with_the_reason(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    worker = RedisSource(
        open_client(server.url, RedisLimits(answer_bytes=2000)), QUEUE, atomic=atomic, owns_client=True
    )
    for behind_empty_poll in (False, True):
        await client.call("FLUSHALL")
        if behind_empty_poll:
            assert await worker.lease("w") is None
        await create(client, order="x" * 5000)
        await create(client, "j2")

        task = await worker.lease("w") or await worker.lease("w")

        assert task is not None
        assert json.loads(task.input)["id"] == "j2"
        found = await whereabouts(client)
        assert found.ended_once
        assert "too large for a worker: the server's answer is larger than 2000 bytes" in found.fields["failedErrorMsg"]
    await worker.close()


async def test_job_failed_by_a_dying_worker_stays_failed(client: RedisClient) -> None:
    """The worker died between the record and the list, as a worker of the plain dialect can."""
    await create(client, failed=True, failedErrorMsg="its own words")
    await client.call("LMOVE", "queue:pack:waiting", "queue:pack:processing", "LEFT", "RIGHT")
    await recover(client)

    found = await whereabouts(client)
    assert found.ended_once
    assert found.fields["failedErrorMsg"] == "its own words"


async def test_job_of_silent_workers_is_retried_and_fails_in_the_end(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    await create(client)
    worker = source(server.url, atomic=atomic)
    tries = 0
    while (await worker.lease("w")) is not None:
        tries += 1
        await client.call("DEL", "lock:pack:j1")
        await recover(client)

    found = await whereabouts(client)
    assert tries == 4
    assert found.ended_once
    assert found.fields["failedErrorMsg"] == "pack lock time exceeded"
    assert found.fields["retries:pack"] == 3
    assert await client.call("KEYS", "*") == ["job:shop:j1"]
    await worker.close()
