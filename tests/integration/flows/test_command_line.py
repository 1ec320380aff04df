"""`activity-worker flows` as a process: the monitor that runs in a cluster, and the commands for people."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from activity_worker.flows import Flow, JobState
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient
from activity_worker.wire.redis_errors import RedisError
from tests.eventually import eventually
from tests.integration.flows.shop import SHOP
from tests.servers.redis import RedisServer, redis_server

QUEUES = ("--flow", "shop", "--queue", "prepare", "--queue", "check", "--queue", "send", "--child", "check:stock")


@contextlib.asynccontextmanager
async def command(*arguments: str, url: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
    """Start `activity-worker flows ...` and kill it at the end if it still runs."""
    asked = [sys.executable, "-m", "activity_worker", "flows", *arguments, *QUEUES]
    environment = {key: value for key, value in os.environ.items() if key.startswith(("COVERAGE_", "PYTHON"))}
    environment |= {"ACTIVITY_REDIS_URL": url} if url else {}
    process = await asyncio.create_subprocess_exec(
        *asked, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def answer(*arguments: str, url: str) -> tuple[int, str, str]:
    """Run the command to its end; return its exit code, its output and its errors."""
    async with command(*arguments, url=url) as process:
        out, err = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()


async def answers(client: RedisClient) -> bool:
    """Whether the server answers commands."""
    try:
        await client.call("GET", "something")
    except RedisError:
        return False
    return True


async def take(client: RedisClient) -> None:
    """Take a job like a worker that dies before it locks the job."""
    await client.call("LMOVE", keys.waiting("prepare"), keys.processing("prepare"), "LEFT", "RIGHT")


async def test_monitor_fails_lost_jobs_logs_them_and_ends_on_sigterm(
    flow: Flow, client: RedisClient, redis_url: str
) -> None:
    job_id = await flow.create({"secret": "s3cr3t"})
    await take(client)

    async with command("monitor", "--look-seconds", "0.1", "--gap-seconds", "0.3", url=redis_url) as process:
        job = await flow.wait(job_id, timeout_seconds=20)
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(process.communicate(), 10)

    assert (process.returncode, job.state) == (0, JobState.FAILED)
    logged = [json.loads(line) for line in err.decode().splitlines()]
    assert logged[0]["message"] == "looking after the locks of prepare, check, send, check:stock"
    (lost,) = [line for line in logged if line["level"] == "warning"]
    assert (lost["message"], lost["queue"], lost["job"]) == ("a job's lock ran out: it is failed", "prepare", job_id)
    assert logged[-1]["message"] == "stopped: 1 failed, 0 put back"
    assert "s3cr3t" not in err.decode()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server(password="p4ssw0rd", appendonly=True) as server:
        yield server


async def test_monitor_and_waiting_clients_survive_a_restart_of_the_server(server: RedisServer) -> None:
    watching = command("monitor", "--look-seconds", "0.1", "--gap-seconds", "0.3", url=server.url)
    async with Flow.open(SHOP, server.url) as flow, watching as process:
        assert process.stderr is not None
        await asyncio.wait_for(_line(process.stderr, "looking after"), 20)
        job_id = await flow.create({"user": 1})
        waiting = asyncio.create_task(flow.wait(job_id, timeout_seconds=20))

        server.kill()
        await asyncio.wait_for(_line(process.stderr, "the server cannot be asked"), 20)
        server.start()
        await eventually("the server has loaded its data", lambda: answers(flow.client))
        await take(flow.client)
        job = await waiting
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(process.communicate(), 10)

    assert (process.returncode, job.state) == (0, JobState.FAILED)
    assert "the server answers again" in err.decode()
    assert "p4ssw0rd" not in err.decode()


async def test_queues_are_listed_and_a_job_is_shown_and_retried(
    flow: Flow, client: RedisClient, redis_url: str
) -> None:
    first = await flow.create({"user": 1, "text": "x" * 200})
    await flow.create({"user": 2})
    await take(client)

    code, out, _ = await answer("ls", url=redis_url)
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["prepare", "1", "1", "1"],
        ["check", "0", "0", "0"],
        ["send", "0", "0", "0"],
        ["check:stock", "0", "0", "0"],
    ]

    code, out, _ = await answer("show", first, url=redis_url)
    assert (code, out.splitlines()[0]) == (0, f"{first}  processing in prepare")
    assert f'  text: "{"x" * 96}...' in out.splitlines()

    code, _, err = await answer("retry", first, url=redis_url)
    assert (code, "is processing: only a failed job is tried again" in err) == (1, True)
    await client.call("HSET", keys.job("shop", first), *keys.pairs(keys.failure("prepare", "no paper left")))
    code, out, _ = await answer("show", first, url=redis_url)
    assert out.splitlines()[:2] == [f"{first}  failed in prepare", "  failed: no paper left"]
    code, out, _ = await answer("retry", first, url=redis_url)
    assert (code, out) == (0, f"{first} waits in prepare\n")
    assert (await flow.get(first)).state is JobState.WAITING


@pytest.mark.parametrize(
    ("arguments", "url", "code", "words"),
    [
        (("ls",), "", 2, "no value for --redis-url: pass it or set ACTIVITY_REDIS_URL"),
        (("ls",), "http://x", 2, "the Redis URL's scheme 'http'"),
        (("ls",), "redis://127.0.0.1:1", 1, "the Redis server cannot be asked: ConnectionRefused"),
        (("monitor", "--gap-seconds", "0"), "redis://127.0.0.1:1", 2, "--gap-seconds: 0.0: must be above 0"),
        (("ls", "--child", "stock"), "redis://127.0.0.1:1", 2, "--child 'stock': expected PARENT:CHILD"),
        (("show", "nobody"), "", 2, "no value for --redis-url"),
    ],
)
async def test_error_names_its_fix(arguments: tuple[str, ...], url: str, code: int, words: str) -> None:
    found, _, err = await answer(*arguments, url=url)

    assert (found, words in err) == (code, True), err


async def _line(stream: asyncio.StreamReader, text: str) -> None:
    while text not in (line := await stream.readline()).decode():
        assert line, f"the process ended before it printed {text!r}"
