"""`activity-worker run` on a queue: the whole runtime, with handlers in processes of their own."""

import asyncio
import os
import signal

import pytest

from activity_worker.contract import Env
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient
from tests.eventually import eventually
from tests.integration.redis.queue import Whereabouts, create, whereabouts
from tests.integration.worker.process import HANDLERS, worker
from tests.servers.redis import RedisServer

OURS = "tests.integration.redis.handlers"


def settings(server: RedisServer, *, atomic: bool = False, lock_seconds: int = 60) -> dict[str, str]:
    """Return the variables that the operator sets in a pod."""
    return {
        Env.REDIS_URL: server.url,
        Env.REDIS_FLOW: "shop",
        Env.REDIS_QUEUE: "pack",
        Env.REDIS_NEXT_QUEUE: "send",
        Env.REDIS_ATTRIBUTES: "n,seconds",
        Env.REDIS_LOCK_SECONDS: str(lock_seconds),
        Env.REDIS_CONCLUDE: "atomic" if atomic else "dialect",
    }


async def ended(client: RedisClient, job_id: str = "j1") -> Whereabouts:
    """Wait until a job has left the queue, and return where it is."""

    async def over() -> bool:
        found = await whereabouts(client, job_id)
        return bool(found.sent or found.failed) and not found.processing

    await eventually(f"job {job_id} has left the queue", over)
    return await whereabouts(client, job_id)


async def test_jobs_run_in_processes_and_sigterm_ends_worker_within_a_poll(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    for number in range(20):
        await create(client, f"j{number}", n=number)
    async with worker("run", f"{HANDLERS}:doubles", "--slots", "3", env=settings(server, atomic=atomic)) as running:
        found = [await ended(client, f"j{number}") for number in range(20)]
        running.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            assert await running.exit_code() == 0

    assert [one.ended_once for one in found] == [True] * 20
    assert [one.fields["doubled"] for one in found] == [2 * number for number in range(20)]
    assert [state for line in running.lines for state in ("worker ready", "worker stopped") if state in line] == [
        "worker ready",
        "worker stopped",
    ]
    assert await client.call("KEYS", "lock:*") == []


async def test_failed_job_has_its_traceback_in_the_log(server: RedisServer, client: RedisClient, atomic: bool) -> None:
    await create(client, "j1", n=1)
    async with worker("run", f"{HANDLERS}:raises_from", env=settings(server, atomic=atomic)) as running:
        found = await ended(client)
        await running.line_with("task failed as")
    (line,) = running.facts("task failed as")

    assert (found.failed, line["message"]) == (True, "task failed as ValueError: no such picture")
    assert "/tests/integration/worker/handlers.py" in line["traceback"].splitlines()[1]
    assert "KeyError: 'missing part'\n\nThe above exception was the direct cause" in line["traceback"]


async def test_handler_that_blocks_beyond_its_lock_is_killed_and_job_failed(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    await create(client, seconds=60)
    named = settings(server, atomic=atomic, lock_seconds=1)
    async with worker("run", f"{OURS}:holds_the_interpreter", env=named):
        found = await ended(client)

    assert found.ended_once
    assert found.fields["failedErrorMsg"] == "Execution timeout of 1 seconds exceeded"


async def test_lock_is_renewed_while_a_handler_holds_the_interpreter(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    await create(client, seconds=20)
    named = {**settings(server, atomic=atomic, lock_seconds=8), Env.REDIS_RENEW_LOCK: "true"}
    async with worker("run", f"{OURS}:holds_the_interpreter", env=named):
        found = await ended(client)

    assert found.ended_once
    assert not found.failed


async def test_job_of_a_killed_worker_runs_on_another_after_its_lock(
    server: RedisServer, client: RedisClient, atomic: bool
) -> None:
    """No monitor runs: the other worker puts the job back."""
    await create(client, seconds=30)
    named = settings(server, atomic=atomic, lock_seconds=4)
    async with worker("run", f"{OURS}:sleeps", env=named) as first:

        async def leased() -> bool:
            return bool((await whereabouts(client)).lock)

        await eventually("the job is leased", leased)
        os.kill(first.process.pid, signal.SIGKILL)

        async def expired() -> bool:
            return not await leased()

        await eventually("the job's lock has expired", expired)
        # The second worker has its full lock time for a short job; the first must not have ended the job before.
        await client.call("HSET", keys.job("shop", "j1"), *keys.pairs({"seconds": 0.1}))
        async with worker("run", f"{OURS}:sleeps", env=named):
            found = await ended(client)

    assert found.ended_once
    assert not found.failed
    assert found.fields[keys.retries("pack")] == 1


@pytest.mark.parametrize("what", ["password", "port"])
async def test_failed_poll_is_logged_with_the_reason_and_no_secret(server: RedisServer, what: str) -> None:
    named = settings(server)
    at = server.address if what == "password" else "127.0.0.1:1"
    named[Env.REDIS_URL] = f"redis://worker:s3cret@{at}/0"
    async with worker("run", f"{HANDLERS}:doubles", env=named) as running:
        code = "WRONGPASS" if what == "password" else "ConnectionRefused"

        line = await running.line_with(code)
        assert (Env.REDIS_URL in line) == (what == "password"), line
    assert [line for line in running.lines if "s3cret" in line] == []


async def test_unusable_url_is_a_usage_error() -> None:
    env: dict[str, str] = {Env.REDIS_URL: "redis://u:s3cret@h/first", Env.REDIS_FLOW: "f", Env.REDIS_QUEUE: "q"}
    async with worker("run", f"{HANDLERS}:doubles", env=env) as running:
        assert await running.exit_code() == 2
    assert "ACTIVITY_REDIS_URL" in "".join(running.lines)
    assert "s3cret" not in "".join(running.lines)


async def test_names_in_several_slots_of_a_cluster_are_a_usage_error() -> None:
    env: dict[str, str] = {Env.REDIS_URL: "redis+cluster://h", Env.REDIS_FLOW: "f", Env.REDIS_QUEUE: "q"}
    async with worker("run", f"{HANDLERS}:doubles", env=env) as running:
        assert await running.exit_code() == 2
    assert "hash tag" in "".join(running.lines)
