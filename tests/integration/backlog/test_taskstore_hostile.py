"""Task stores that flood the operator with data: it reads 1 MiB for a round and cuts the connection."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from activity_operator.backlog.poll_rounds import SourceEndpoint
from activity_operator.backlog.protocol import SourceProblemError
from activity_operator.backlog.taskstore import TaskStoreReader
from tests.servers.postgres import PostgresServer, execute, postgres_server

MIB = 1024 * 1024
#: What the sockets of both sides hold, besides the 1 MiB that the operator reads.
SOCKETS_BYTES = 16 * MIB
#: AuthenticationOk, then the head of an error message of 1 GiB.
FLOOD = b"R\x00\x00\x00\x08\x00\x00\x00\x00" + b"E\x40\x00\x00\x00"


@dataclass
class HostileServer:
    """A server on a port of its own; `sent` counts the bytes that the operator's side took."""

    url: str = ""
    sent: int = 0


@asynccontextmanager
async def hostile(flood: int) -> AsyncIterator[HostileServer]:
    """Run a server that answers the login with `flood` bytes of one message."""
    server = HostileServer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(MIB)
            writer.write(FLOOD)
            for _ in range(0, flood, 65536):
                writer.write(b"x" * 65536)
                await writer.drain()
                server.sent += 65536
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        host, port = listening.sockets[0].getsockname()
        server.url = f"postgresql://me:secret@{host}:{port}/tasks?sslmode=disable"
        yield server


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server(durable=False, tls=True) as running:
        yield running


async def count(url: str, tasks: str = "") -> SourceProblemError | int:
    """Return the operator's count, or why there is none."""
    reader, endpoint = TaskStoreReader(), SourceEndpoint(url, 1.0)
    try:
        (found,) = await reader.read(endpoint, [tasks])
    except SourceProblemError as problem:
        return problem
    finally:
        await reader.close(endpoint)
    assert not isinstance(found, SourceProblemError)
    return found


async def test_server_that_floods_at_the_login_is_cut_off() -> None:
    async with hostile(flood=256 * MIB) as server:
        problem = await count(server.url)

    assert isinstance(problem, SourceProblemError)
    assert problem.reason == "QueryFailed"
    assert "sends more than 1048576 bytes for a count: correct the URL" in problem.message
    assert "secret" not in problem.message
    assert server.sent < SOCKETS_BYTES


@pytest.mark.parametrize("tls", ["disable", "require"])
async def test_answer_beyond_one_mebibyte_is_not_read(postgres: PostgresServer, tls: str) -> None:
    """A store's owner may put a view in the table's place; its rows can cause notices of any length."""
    url = f"{postgres.url.partition('?')[0]}?sslmode={tls}"
    await execute(
        postgres.url,
        "DROP VIEW IF EXISTS activitypool_instances",
        "CREATE OR REPLACE FUNCTION shout(size int) RETURNS float AS "
        "$$ BEGIN RAISE NOTICE '%', repeat('x', size); RETURN 0; END $$ LANGUAGE plpgsql VOLATILE",
        "CREATE VIEW activitypool_instances AS "
        "SELECT 'order' AS task_name, FALSE AS complete, FALSE AS paused, shout(100000) AS next_run_time",
    )
    assert await count(url) == 1
    assert await count(url, "order") == 1

    await execute(
        postgres.url,
        "CREATE OR REPLACE VIEW activitypool_instances AS "
        "SELECT 'order' AS task_name, FALSE AS complete, FALSE AS paused, shout(5000000) AS next_run_time",
    )
    problem = await count(url)

    assert isinstance(problem, SourceProblemError)
    assert (problem.reason, "sends more than 1048576 bytes" in problem.message) == ("QueryFailed", True)


async def test_rounds_of_a_store_do_not_add_up_to_the_limit(postgres: PostgresServer) -> None:
    await execute(
        postgres.url,
        "DROP VIEW IF EXISTS activitypool_instances",
        "CREATE OR REPLACE FUNCTION shout(size int) RETURNS float AS "
        "$$ BEGIN RAISE NOTICE '%', repeat('x', size); RETURN 0; END $$ LANGUAGE plpgsql VOLATILE",
        "CREATE VIEW activitypool_instances AS "
        "SELECT 'order' AS task_name, FALSE AS complete, FALSE AS paused, shout(400000) AS next_run_time",
    )
    reader, endpoint = TaskStoreReader(), SourceEndpoint(postgres.url, 1.0)
    try:
        assert [await reader.read(endpoint, [""]) for _ in range(5)] == [[1]] * 5
    finally:
        await reader.close(endpoint)
