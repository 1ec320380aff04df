"""The count of due instances in a real store: which ones count, how fast changes are seen, the cost of large stores."""

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from statistics import median

import pytest
from sqlalchemy import text

from activity_operator.backlog.poll_rounds import ANNOUNCE_SECONDS, SourceEndpoint
from activity_operator.backlog.taskstore import LEAST_SECONDS, TaskStoreReader, item
from activity_worker.wire.taskstore_due import CHANNEL, MOST_DUE
from tests.eventually import eventually
from tests.integration.backlog.stores import fill, opened, put, watched
from tests.integration.steps.due import count_due
from tests.servers.postgres import PostgresServer, execute, new_database, postgres_server, standby_of


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(durable=False) as running:
        yield running


@pytest.fixture
async def url(server: PostgresServer) -> str:
    return await new_database(server.url)


async def test_count_has_the_same_rule_for_due_as_the_runners(url: str) -> None:
    rng = random.Random(5)
    rows = [
        {
            "task_name": rng.choice(["order", "refund", "mail"]),
            "next_run_time": rng.choice([None, 1.0, 10.0, 10.0000001, 20.0, float("inf")]),
            "complete": rng.random() < 0.3,
            "paused": rng.random() < 0.3,
        }
        for _ in range(400)
    ]
    asked = [(), ("order",), ("order", "mail"), ("none",), ("refund", "none")]
    async with opened(url) as store:
        await fill(store, rows)
        for now in (0.0, 1.0, 9.999, 10.0, 15.0, 1e9):
            counter = TaskStoreReader(lambda now=now: now)  # type: ignore[misc]
            counts = await counter.read(SourceEndpoint(url, 1.0), [item(tasks) for tasks in asked])
            async with store.engine.connect() as connection:
                expected = [(await connection.execute(count_due(now, tasks))).scalar_one() for tasks in asked]
            await counter.close(SourceEndpoint(url, 1.0))

            assert list(counts) == expected
            assert expected[3] == 0
    assert expected[0] > 100


async def test_leased_instance_is_due_when_its_lease_expires(url: str) -> None:
    async with opened(url) as store:
        await put(store)
        now = time.time()
        definition = (await store.listed())[0].instance.definition_id
        assert await store.claim("r1", lambda: now, [definition], 60.0) is not None

        for at, due in ((now, 0), (now + 59, 0), (now + 61, 1)):
            counter = TaskStoreReader(lambda at=at: at)  # type: ignore[misc]
            assert list(await counter.read(SourceEndpoint(url, 1.0), [""])) == [due]
            await counter.close(SourceEndpoint(url, 1.0))


async def test_store_without_tables_counts_zero_until_they_exist(url: str) -> None:
    async with watched(url, interval=0.2) as count:
        await count.until(0)
        async with opened(url) as store:
            await put(store)
            await count.until(1)


async def test_new_instance_is_counted_at_once(url: str) -> None:
    took = []
    async with opened(url) as store, watched(url) as count:
        await count.until(0)
        for number in range(1, 12):
            await asyncio.sleep(LEAST_SECONDS + ANNOUNCE_SECONDS)
            began = time.monotonic()
            await put(store)
            await count.until(number)
            took.append(time.monotonic() - began)

    # Some 0.03 s on an idle machine; without the announcement it would be a minute, until the next poll.
    assert median(took) < 2.0, took


async def test_many_announcements_cost_ten_counts_a_second_at_most(url: str) -> None:
    async with opened(url) as store, watched(url) as count:
        await count.until(0)
        began, before = time.monotonic(), len(count.rounds)
        async with store.engine.connect() as connection:
            for number in range(1500):
                await connection.execute(text(f"NOTIFY {CHANNEL}, 'order{number}'"))
                await connection.commit()
        stormed = time.monotonic() - began
        rounds = len(count.rounds) - before
        await put(store)
        await count.until(1)

    assert rounds <= stormed / LEAST_SECONDS + 2, (rounds, stormed)


async def test_many_instances_of_other_tasks_do_not_affect_the_count(url: str) -> None:
    crowd = (
        "INSERT INTO activitypool_instances SELECT 'c' || n, 'crowd', 'd', '{}', '{}', 1, FALSE, FALSE, FALSE, '', 1, "
        f"'', 0, 0 FROM generate_series(1, {MOST_DUE + 1000}) AS n"
    )
    async with opened(url) as store:
        await fill(store, [{"task_name": "ours", "next_run_time": 2.0, "complete": False, "paused": False}])
        await execute(url, crowd)
    counter = TaskStoreReader()
    counts = await counter.read(SourceEndpoint(url, 1.0), [item(["ours"]), item([]), item(["crowd", "ours"])])
    began = time.monotonic()
    await counter.wait(SourceEndpoint(url, 1.0), 1.0)
    rested = time.monotonic() - began
    took = counter._stores[SourceEndpoint(url, 1.0)].took_seconds
    await counter.close(SourceEndpoint(url, 1.0))

    assert list(counts) == [1, MOST_DUE, MOST_DUE + 1001]
    assert rested >= min(1.0, 9 * took)


async def test_lost_connection_changes_nothing(server: PostgresServer, url: str) -> None:
    async with opened(url) as store, watched(url, interval=0.2) as count:
        await put(store)
        await count.until(1)
        cut = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'activity-operator' "
            f"AND datname = '{url.rpartition('/')[2]}'"
        )
        await execute(server.url, cut)
        await put(store)
        await count.until(2)

        assert [outcome for outcome, _ in count.rounds if outcome != "ok"] == ["unreachable"]


async def test_restarted_server_is_reported_and_counted_again() -> None:
    with postgres_server() as server:
        async with opened(server.url) as store:
            await put(store, count=3)
        async with watched(server.url, interval=0.2) as count:
            await count.until(3)
            server.stop()
            assert await count.until_fails() == "BackendUnreachable"
            assert count.tasks == 3
            server.start()
            await count.until(3)


async def test_of_several_hosts_the_primary_is_counted_or_else_a_standby() -> None:
    with postgres_server(durable=False) as server, standby_of(server) as standby:
        both = server.url.replace("127.0.0.1:", f"127.0.0.1:{standby.port},127.0.0.1:")
        async with opened(server.url) as store:
            await put(store)
        async with watched(both) as count:
            await count.until(1)
            async with opened(both) as store:
                await put(store)
            # This change comes by an announcement, which a standby's clients do not get.
            await count.until(2)
        async with watched(standby.url, interval=0.2) as count:
            await count.until(2)


async def test_hanging_server_is_reported_unreachable_and_counted_again() -> None:
    with postgres_server(durable=False) as server:
        async with opened(server.url) as store:
            await put(store)
        async with watched(server.url, interval=0.2) as count:
            await count.until(1)
            server.signal_all(signal.SIGSTOP)
            try:
                assert await count.until_fails() == "BackendUnreachable"
            finally:
                server.signal_all(signal.SIGCONT)
            await count.until(1)


async def test_removed_pools_leave_no_connection(server: PostgresServer, url: str) -> None:
    async with watched(url) as count:
        await count.until(0)
    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'activity-operator'"
    async with opened(server.url) as store, store.engine.connect() as connection:

        async def gone() -> bool:
            return int((await connection.execute(text(left))).scalar_one()) == 0

        await eventually("the operator's connections are closed", gone)
