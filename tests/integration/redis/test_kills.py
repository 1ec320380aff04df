"""A worker is killed or cut off before and after each of its commands: no job is stuck, none ends twice."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from activity_worker.contract import LeasedTask
from activity_worker.errors import SourceError
from activity_worker.runtime.task_run import conclude
from activity_worker.sources.redis import RedisSource
from activity_worker.wire.redis_connection import RedisClient, open_client
from tests.integration.redis.proxy import Interruption, Proxy, proxy
from tests.integration.redis.queue import create, let_locks_expire, monitor, recover, source, whereabouts
from tests.servers.redis import RedisServer, redis_server

ENDS = ("succeed", "fail")
#: What sees to the jobs of a lost worker.
Repair = Callable[[RedisClient], Awaitable[None]]
#: Seconds for which a patient worker retries unanswered calls, while a server is killed and restarted.
PATIENCE_SECONDS = 20.0
#: The number of polls after which the worker gives up.
POLLS = 50


async def work(worker: RedisSource, end: str, name: str, *, patient: bool = False) -> str:
    """Lease a job and conclude it; return "done", "refused" or "nothing"."""
    try:
        task = await _leased(worker, name, patient=patient)
    except SourceError:
        return "refused"
    if task is None:
        return "nothing"
    token = task.token

    async def send() -> None:
        if end == "succeed":
            await worker.succeed(token, f'{{"by": "{name}"}}')
        else:
            await worker.fail(token, "Broken", "no more boxes")

    try:
        # Like the runtime: an unanswered call is sent again.
        await conclude(send, lost=lambda: None, for_seconds=PATIENCE_SECONDS if patient else 0.0, spread=lambda: -0.98)
    except SourceError:
        return "refused"
    return "done"


async def _leased(worker: RedisSource, name: str, *, patient: bool) -> LeasedTask | None:
    """Poll for a job; raises the last `SourceError` when the time is over."""
    deadline = time.monotonic() + (PATIENCE_SECONDS if patient else 0.0)
    polls = 0
    while True:
        try:
            task = await worker.lease(name)
        except SourceError:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(0.02)  # like the runtime, which sleeps longer
            continue
        polls += 1
        if task is not None or not patient or polls == POLLS:
            return task


@asynccontextmanager
async def working(url: str, *, atomic: bool) -> AsyncIterator[RedisSource]:
    worker = source(url, atomic=atomic)
    yield worker
    await worker.close()


async def _fresh(client: RedisClient) -> None:
    await client.call("FLUSHALL")
    await client.call("SCRIPT", "FLUSH")
    await create(client)


async def _clean_run(server: RedisServer, client: RedisClient, end: str, *, atomic: bool) -> list[str]:
    """Return the commands of a worker without any fault."""
    await _fresh(client)
    async with proxy(server.port) as way, working(way.url, atomic=atomic) as worker:
        assert await work(worker, end, "first") == "done"
        return way.commands


async def _empty_poll(client: RedisClient, worker: RedisSource) -> None:
    """Let a worker find an empty queue, to which a job comes then: the next poll waits for it at once."""
    await client.call("FLUSHALL")
    assert await worker.lease("first") is None
    await create(client)


async def _then(client: RedisClient, url: str, way: Proxy, *, atomic: bool, repair: Repair = recover) -> str:
    """Let locks expire, and let another worker do the remaining work; return its result."""
    assert way.struck.is_set()
    await let_locks_expire(client)
    await repair(client)
    async with working(url, atomic=atomic) as second:
        for _ in range(3):
            if (became := await work(second, "succeed", "second")) != "nothing":
                return became
    return "nothing"


@pytest.mark.parametrize("repair", [recover, monitor], ids=["by other workers", "by a monitor"])
@pytest.mark.parametrize("end", ENDS)
async def test_job_of_a_worker_killed_at_any_command_ends_once(
    server: RedisServer, client: RedisClient, atomic: bool, end: str, repair: Repair
) -> None:
    commands = await _clean_run(server, client, end, atomic=atomic)
    for at, command in enumerate(commands):
        for fate in (Interruption.KILLED_BEFORE, Interruption.KILLED_AFTER):
            where = f"{fate} {command} ({at})"
            await _fresh(client)
            async with proxy(server.port, fate, at) as way, working(way.url, atomic=atomic) as first:
                ends = [await work(first, end, "first")]
                ends.append(await _then(client, server.url, way, atomic=atomic, repair=repair))

            found = await whereabouts(client)
            assert found.ended_once, f"{where}: {found}, {ends}"
            # An answer that a worker got is valid. If the first worker got none, either may have ended the job.
            assert ends.count("done") <= 1, f"{where}: {ends}"
            if not found.failed:
                assert found.fields["completed-queue"] == "pack", where
                assert found.fields["by"] == ("second" if "done" in ends else "first"), f"{where}: {found}, {ends}"


@pytest.mark.parametrize("end", ENDS)
async def test_job_that_a_killed_worker_waited_for_ends_once(
    server: RedisServer, client: RedisClient, atomic: bool, end: str
) -> None:
    """The worker has found the queue empty before."""
    at = struck = 0
    while struck or not at:
        struck = 0
        for fate in (Interruption.KILLED_BEFORE, Interruption.KILLED_AFTER):
            async with proxy(server.port) as way, working(way.url, atomic=atomic) as first:
                await _empty_poll(client, first)
                way.fate, way.at = fate, len(way.commands) + at
                await work(first, end, "first")
                if not way.struck.is_set():
                    break
                struck += 1
                await _then(client, server.url, way, atomic=atomic)
            found = await whereabouts(client)
            assert found.ended_once, f"{fate} {way.commands[-1]} ({at}): {found}"
        at += 1

    assert at > 3


async def test_atomic_worker_cut_off_behind_an_empty_poll_ends_its_job(
    server: RedisServer, client: RedisClient
) -> None:
    lost = []
    for at in range(3):
        for fate in (Interruption.CUT_BEFORE, Interruption.CUT_AFTER):
            async with proxy(server.port) as way, working(way.url, atomic=True) as worker:
                await _empty_poll(client, worker)
                way.fate, way.at = fate, len(way.commands) + at
                became = await work(worker, "succeed", "first", patient=True)
            assert way.struck.is_set()
            if became == "nothing":
                # The job's id was in the lost answer: other workers find it without a lock.
                lost.append((way.commands[way.at], fate))
                await recover(client)
                assert (await whereabouts(client)).waiting == 1
            else:
                assert (await whereabouts(client)).ended_once

    assert lost == [("BLMOVE", Interruption.CUT_AFTER)]


@pytest.mark.parametrize("end", ENDS)
async def test_worker_cut_off_at_any_command_still_ends_its_job(
    server: RedisServer, client: RedisClient, atomic: bool, end: str
) -> None:
    """No monitor runs and no lock expires: the worker is alive and repeats unanswered calls."""
    commands = await _clean_run(server, client, end, atomic=atomic)
    for at, command in enumerate(commands):
        for fate in (Interruption.CUT_BEFORE, Interruption.CUT_AFTER):
            where = f"{fate} {command} ({at})"
            await _fresh(client)
            async with proxy(server.port, fate, at) as way, working(way.url, atomic=atomic) as worker:
                became = await work(worker, end, "first", patient=True)

            assert way.struck.is_set()
            found = await whereabouts(client)
            if command == "BLMOVE" and fate.after and not atomic:
                # The job's id was in the lost answer, so only a monitor can find the job.
                assert (became, found.processing, found.lock) == ("nothing", 1, None), where
                continue
            assert found.ended_once, f"{where}: {found}, {became}"
            assert found.failed == (end == "fail"), f"{where}: {found}"
            assert became == "done", f"{where}: {became}"


async def test_worker_stopped_before_it_got_its_lease_gives_the_job_back(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    """It is cut off before SET, or after the step that leases."""
    await _clean_run(server, client, "succeed", atomic=atomic)
    await client.call("FLUSHALL")
    await create(client)
    fate, at = (Interruption.CUT_AFTER, 0) if atomic else (Interruption.CUT_BEFORE, 1)
    async with proxy(server.port, fate, at) as way, working(way.url, atomic=atomic) as worker:
        assert await work(worker, "succeed", "first") == "refused"
        assert (await whereabouts(client)).processing == 1

    found = await whereabouts(client)
    assert (found.waiting, found.processing, found.lock) == (1, 0, None)


async def test_job_ends_once_when_the_server_is_killed_at_any_command(atomic: bool) -> None:
    """The server persists every write before it answers; the clients reconnect."""
    with redis_server(appendonly=True) as own:
        asking = open_client(own.url)
        commands = await _clean_run(own, asking, "succeed", atomic=atomic)
        for at, command in enumerate(commands):
            for fate in (Interruption.CUT_BEFORE, Interruption.CUT_AFTER):
                where = f"{fate} {command} ({at})"
                await _fresh(asking)
                async with proxy(own.port, fate, at) as way, working(way.url, atomic=atomic) as worker:
                    at_work = asyncio.create_task(work(worker, "succeed", "first", patient=True))
                    await way.struck.wait()
                    await asyncio.to_thread(own.kill)
                    await asyncio.to_thread(own.start)
                    became = await at_work
                    if became == "nothing":
                        assert (command, fate) == ("BLMOVE", Interruption.CUT_AFTER), where
                        await monitor(asking)
                found = await whereabouts(asking)
                assert found.ended_once, f"{where}: {found}, {became}"
        await asking.close()
