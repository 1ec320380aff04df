"""A worker is held before each of its commands until its lock has expired and another worker has its job."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from activity_worker.errors import LeaseLostError
from activity_worker.sources.redis import RedisSource
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient, open_client
from tests.integration.redis.proxy import Interruption, proxy
from tests.integration.redis.queue import QUEUE, create, let_locks_expire, monitor, recover, source, whereabouts
from tests.integration.redis.test_kills import work
from tests.servers.redis import RedisServer

#: Commands before which a late worker of the dialect overwrites the result of the worker that ended the job; and those
#: after which it passes a job on twice, if another worker waits in the next queue. See docs/redis.md.
OVERWRITES = {"SET", "HSET"}
PASSES_ON_TWICE = {"SET", "HSET", "MULTI", "RPUSH", "LREM", "DEL", "EXEC"}


@dataclass(frozen=True)
class Came:
    """The command before which the worker was held, both results, whose output was kept, how often it was sent on."""

    command: str
    first: str
    second: str
    by: str | None
    arrived: int

    @property
    def ended_by_one(self) -> bool:
        """Whether exactly one worker ended the job, its output was kept, and the job was passed on once."""
        ended = [name for name in ("first", "second") if getattr(self, name) == "done"]
        return ended == [self.by] and self.arrived == 1


async def held_at_each(
    server: RedisServer,
    client: RedisClient,
    *,
    atomic: bool,
    awaited: bool,
    second_ends: str,
    behind_empty_poll: bool = False,
) -> list[Came]:
    """Return a row for each command of the first worker at which it was held.

    `awaited`: another worker waits in the next queue. `second_ends` its job `before` or `after` the first continues.
    `behind_empty_poll`: the job comes when the first worker has found the queue empty.
    """
    await client.call("FLUSHALL")
    await client.call("SCRIPT", "FLUSH")
    await create(client)
    warm = source(server.url, atomic=atomic)
    await work(warm, "succeed", "warm")
    if behind_empty_poll:
        assert await warm.lease("warm") is None
        await create(client)
        await work(warm, "succeed", "warm")
    await warm.close()
    found: list[Came] = []
    while came := await _held(
        server,
        client,
        len(found),
        atomic=atomic,
        awaited=awaited,
        second_ends=second_ends,
        behind_empty_poll=behind_empty_poll,
    ):
        found.append(came)
    return found


async def _held(
    server: RedisServer,
    client: RedisClient,
    at: int,
    *,
    atomic: bool,
    awaited: bool,
    second_ends: str,
    behind_empty_poll: bool,
) -> Came | None:
    await client.call("FLUSHALL")
    second = source(server.url, atomic=atomic)
    async with proxy(server.port) as way, _next_queue(server, awaited) as arrivals:
        first = source(way.url, atomic=atomic)
        if behind_empty_poll:
            assert await first.lease("first") is None
        await create(client)
        way.fate, way.at = Interruption.HELD_BEFORE, len(way.commands) + at
        at_work = asyncio.create_task(work(first, "succeed", "first"))
        striking = asyncio.create_task(way.struck.wait())
        await asyncio.wait({at_work, striking}, return_when=asyncio.FIRST_COMPLETED)
        if not striking.done():
            striking.cancel()
            return None
        await _put_back(client, atomic=atomic)
        task = None
        for _ in range(3):
            task = task or await second.lease("second")
        assert task is not None
        ends = _end(second, task.token)
        ended = await ends if second_ends == "before" else ""
        way.release.set()
        became = await at_work
        ended = ended or await ends
        await first.close()
    await second.close()
    there = await whereabouts(client)
    assert there.waiting == there.processing == 0, there
    return Came(way.commands[way.at], became, ended, there.fields.get("by"), len(arrivals) + there.sent)


async def _put_back(client: RedisClient, *, atomic: bool) -> None:
    """Return the held worker's job to the queue after its lock has expired."""
    await let_locks_expire(client)
    await (recover(client) if atomic else monitor(client, requeue=9))


async def _end(worker: RedisSource, token: str) -> str:
    try:
        await worker.succeed(token, '{"by": "second"}')
    except LeaseLostError:
        return "refused"
    return "done"


@contextlib.asynccontextmanager
async def _next_queue(server: RedisServer, awaited: bool) -> AsyncIterator[list[str]]:
    """Yield the jobs that a worker of the next queue has taken, none unless `awaited`."""
    arrivals: list[str] = []
    if not awaited:
        yield arrivals
        return
    asking = open_client(server.url)
    over = asyncio.Event()

    async def take() -> None:
        while not over.is_set():
            names = (keys.waiting(QUEUE.next_queue), "taken", "LEFT", "RIGHT", 0.05)
            if (job_id := await asking.call_blocking("BLMOVE", *names, seconds=0.05)) is not None:
                arrivals.append(job_id)

    taking = asyncio.create_task(take())
    yield arrivals
    over.set()
    await taking
    await asking.close()


@pytest.mark.parametrize("second_ends", ["before", "after"])
@pytest.mark.parametrize("awaited", [False, True], ids=["no worker waits next", "a worker waits next"])
async def test_atomic_job_is_ended_by_one_of_two_workers(
    server: RedisServer, client: RedisClient, awaited: bool, second_ends: str
) -> None:
    found = await held_at_each(server, client, atomic=True, awaited=awaited, second_ends=second_ends)

    assert len(found) == 2
    assert [came for came in found if not came.ended_by_one] == []
    assert [came.second for came in found] == ["done"] * 2, "it had the lock"


@pytest.mark.parametrize("second_ends", ["before", "after"])
async def test_atomic_job_that_a_worker_waited_for_is_ended_by_one(
    server: RedisServer, client: RedisClient, second_ends: str
) -> None:
    found = await held_at_each(
        server, client, atomic=True, awaited=True, second_ends=second_ends, behind_empty_poll=True
    )

    assert [came.command for came in found] == ["BLMOVE", "EVALSHA", "EVALSHA"]
    assert [came for came in found if not came.ended_by_one] == []
    assert [came.second for came in found] == ["done"] * 3, "it had the lock"


async def test_dialect_passes_no_job_on_twice_if_no_worker_waits_for_it(
    server: RedisServer, client: RedisClient
) -> None:
    """The dialect's undo step prevents it."""
    for second_ends in ("before", "after"):
        found = await held_at_each(server, client, atomic=False, awaited=False, second_ends=second_ends)

        assert [came for came in found if came.arrived != 1 or came.first == came.second == "done"] == []


async def test_dialect_is_unsafe_only_where_the_documentation_says_so(server: RedisServer, client: RedisClient) -> None:
    found = await held_at_each(server, client, atomic=False, awaited=True, second_ends="before")

    assert {came.command for came in found if came.by != "second"} == OVERWRITES
    assert {came.command for came in found if came.arrived > 1} == PASSES_ON_TWICE
    assert [came for came in found if came.first == "done"] == []
