"""The operator counts on every kind of Redis server that a URL can name, and continues when the server comes back."""

import asyncio
import time

import pytest

from activity_operator.counted_sources import REDIS_SECONDS
from tests.eventually import eventually
from tests.integration.backlog.counted import PATIENCE_SECONDS, Counted, push, with_ca
from tests.servers.redis import RedisServer, cluster_url, redis_cluster, redis_server, redis_with_sentinels

PASSWORD = "hunter2"
READER = f"reader on >{PASSWORD} ~queue:* +llen"


async def test_password_in_the_url(counted: Counted) -> None:
    with redis_server(password=PASSWORD) as server:
        push(server, "orders", 3)
        counted.pool("orders", server.url)

        await counted.counts("orders", 3)


async def test_acl_user_needs_only_llen_on_the_queues_lists(counted: Counted) -> None:
    with redis_server(users=[READER]) as server:
        push(server, "orders", 3)
        counted.pool("orders", f"redis://reader:{PASSWORD}@{server.address}/0")

        await counted.counts("orders", 3)


async def test_tls_with_a_private_ca_in_the_url(counted: Counted) -> None:
    with redis_server(tls=True, password=PASSWORD) as server:
        push(server, "orders", 3)
        counted.pool("orders", with_ca(server))

        await counted.counts("orders", 3)


async def test_database_in_the_url(counted: Counted) -> None:
    with redis_server() as server:
        push(server, "orders", 3, "-n", "5")
        counted.pool("orders", server.url.removesuffix("0") + "5")

        await counted.counts("orders", 3)


async def test_500_queues_are_one_exchange_a_round_on_one_connection(counted: Counted) -> None:
    with redis_server() as server:
        push(server, "q499", 2)
        counted.secrets["shop"] = server.url
        for number in range(500):
            counted.pool(f"q{number}")
        await counted.counts("q499", 2)
        began, before = time.monotonic(), _calls(server)
        await eventually(
            "five rounds are counted",
            lambda: _calls(server)["calls"] - before["calls"] >= 5 * 500,
            every_seconds=2.0,  # every check of the condition is a call, too
        )
        after = _calls(server)
        took = time.monotonic() - began

    rounds = (after["calls"] - before["calls"]) / 500
    assert rounds == int(rounds), "a round of some queues only"
    assert rounds <= took / REDIS_SECONDS + 1
    # 500 commands need more than one read of the server's buffer, but far fewer reads than commands.
    assert (after["reads"] - before["reads"]) / rounds <= 5
    assert after["clients"] == 2, "the operator's connection, and the one that asks this"


def _calls(server: RedisServer) -> dict[str, int]:
    statistics = dict(line.split(":", 1) for line in server.say("INFO", "everything").splitlines() if ":" in line)
    llen = statistics.get("cmdstat_llen", "calls=0,")
    return {
        "calls": int(llen.partition("calls=")[2].partition(",")[0]),
        "reads": int(statistics["total_reads_processed"]),
        "clients": int(statistics["connected_clients"]),
    }


async def test_restarted_server_is_counted_again_and_never_as_empty(
    counted: Counted,
) -> None:
    with redis_server(appendonly=True, password=PASSWORD) as server:
        push(server, "orders", 3)
        counted.pool("orders", server.url)
        await counted.counts("orders", 3)
        server.kill()
        error = await counted.fails("orders")
        assert (error.reason, counted.tasks("orders")) == ("BackendUnreachable", 3)

        await asyncio.to_thread(server.start)
        await counted.counts("orders", 3)
        push(server, "orders", 1)
        await counted.counts("orders", 4)
    assert set(counted.seen["orders"]) == {3, 4}


async def test_frozen_server_is_reported_and_its_last_count_ages(counted: Counted) -> None:
    with redis_server() as server:
        push(server, "orders", 3)
        counted.pool("orders", f"{server.url}?socket_timeout=0.3&socket_connect_timeout=0.3")
        await counted.counts("orders", 3)
        server.freeze()
        error = await counted.fails("orders")
        assert "the server did not answer in time" in error.message or "no connection in time" in error.message
        assert counted.age("orders", time.time()) > 0.5

        server.thaw()
        await counted.counts("orders", 3)
        # An unchanged count causes no notification, so the age is polled.
        await eventually(
            "a new count has come",
            lambda: counted.age("orders", time.time()) < 0.5,
            seconds=PATIENCE_SECONDS,
            every_seconds=0.02,
        )


@pytest.mark.timeout(120)
async def test_sentinel_failover_is_followed_and_no_queue_counts_as_empty(counted: Counted) -> None:
    with redis_with_sentinels(password=PASSWORD) as group:
        push(group.master, "orders", 3)
        group.master.say("WAIT", "1", "5000")
        counted.pool("orders", group.url)
        await counted.counts("orders", 3)
        group.master.kill()
        await eventually(
            "the replica is the master",
            lambda: "role:master" in group.replica.say("INFO", "replication"),
            every_seconds=0.1,
        )
        push(group.replica, "orders", 2)

        await counted.counts("orders", 5)
    assert set(counted.seen["orders"]) <= {3, 5}
    assert {error.reason for error in counted.errors.get("orders", [])} <= {"BackendUnreachable"}


@pytest.mark.timeout(120)
async def test_queues_of_a_cluster_are_counted_after_slots_move(counted: Counted) -> None:
    with redis_cluster(nodes=3, password=PASSWORD) as members:
        queues = [f"q{number}" for number in range(60)]
        for number, queue in enumerate(queues):
            push(members[0], queue, number + 1, "-c")
        counted.secrets["shop"] = cluster_url(members)
        for queue in queues:
            counted.pool(queue)
        for number, queue in enumerate(queues):
            await counted.counts(queue, number + 1)

        sources = await asyncio.to_thread(members[0].say, "CLUSTER", "MYID")
        target = await asyncio.to_thread(members[2].say, "CLUSTER", "MYID")
        move = ("--cluster-from", sources, "--cluster-to", target, "--cluster-slots", "5000", "--cluster-yes")
        await asyncio.to_thread(members[0].say, "--cluster", "reshard", members[0].address, *move)
        for queue in queues:
            push(members[0], queue, 1, "-c")
        for number, queue in enumerate(queues):
            await counted.counts(queue, number + 2)

    assert all(set(counted.seen[queue]) <= {number + 1, number + 2} for number, queue in enumerate(queues))
