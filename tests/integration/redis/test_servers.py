"""Servers with passwords, users and TLS, sentinels and clusters; and each way in which they can be unreachable."""

import asyncio
from collections.abc import Iterator

import pytest

from activity_worker.errors import DeniedError, LeaseLostError, MissingError, SourceError, UnreachableError
from activity_worker.runtime.task_run import conclude
from activity_worker.sources.redis import RedisSource
from activity_worker.sources.redis_job import RedisQueue
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient, open_client
from activity_worker.wire.redis_errors import RedisError
from tests.integration.redis.queue import create, monitor, recover, source, whereabouts
from tests.integration.redis.test_kills import work
from tests.servers.ports import free_port
from tests.servers.redis import RedisServer, cluster_url, redis_cluster, redis_server, redis_with_sentinels

SECRET = "s3cret-Pa:ss@"
QUOTED = "s3cret-Pa%3Ass%40"
#: Exactly the rights that a worker of a queue needs; docs/redis.md lists them.
ACL = (
    "~queue:pack:* ~queue:send:waiting ~lock:pack:* ~job:shop:* "
    "-@all +blmove +set +hmget +get +hset +multi +exec +rpush +lrem +del +lpos +lpush "
    "+eval +evalsha +hget +hexists +exists +lrange"
)
ATOMIC = "+lmove +expire"


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    """A server with a password, a user with few rights, and TLS."""
    users = [f"worker on >{SECRET} {ACL}", f"atomic on >{SECRET} {ACL} {ATOMIC}", "nobody on >x ~nothing +@all"]
    with redis_server(password=SECRET, users=users, tls=True) as running:
        yield running


def as_user(server: RedisServer, user: str, password: str = QUOTED, **parts: str) -> str:
    """Return the server's URL for a user."""
    return f"rediss://{user}:{password}@127.0.0.1:{server.port}/0?ssl_ca_certs={server.tls_ca}"


async def test_user_with_few_rights_can_work_over_tls(guarded: RedisServer, atomic: bool) -> None:
    asking = open_client(as_user(guarded, "default"))
    for end in ("succeed", "fail"):
        await asking.call("FLUSHALL")
        await create(asking)
        worker = source(as_user(guarded, "atomic" if atomic else "worker"), atomic=atomic)

        assert await work(worker, end, "w") == "done"
        assert (await whereabouts(asking)).ended_once
        await worker.close()
    await asking.close()


async def test_user_with_few_rights_can_put_back_a_lost_job(guarded: RedisServer) -> None:
    asking, user = open_client(as_user(guarded, "default")), open_client(as_user(guarded, "worker"))
    await asking.call("FLUSHALL")
    await create(asking)
    await asking.call("LMOVE", "queue:pack:waiting", "queue:pack:processing", "LEFT", "RIGHT")
    await recover(user)

    found = await whereabouts(asking)
    assert (found.waiting, found.fields["retries:pack"]) == (1, 1)
    await user.close()
    await asking.close()


@pytest.mark.parametrize(
    ("url", "kind", "code"),
    [
        ("rediss://worker:wrong@{at}/0?ssl_ca_certs={ca}", DeniedError, "WRONGPASS"),
        ("rediss://{at}/0?ssl_ca_certs={ca}", DeniedError, "NOAUTH"),
        ("rediss://nobody:x@{at}/0?ssl_ca_certs={ca}", DeniedError, "NOPERM"),
        ("rediss://:{secret}@{at}/99?ssl_ca_certs={ca}", MissingError, "NoDatabase"),
        ("rediss://:{secret}@{at}/0", UnreachableError, "TlsFailed"),
        ("rediss://:{secret}@{at}/0?ssl_ca_certs=/nowhere.pem", UnreachableError, "TlsFailed"),
        ("redis://:{secret}@{at}/0", UnreachableError, "ConnectionLost"),
        ("redis://:{secret}@127.0.0.1:{free}/0", UnreachableError, "ConnectionRefused"),
        ("redis://:{secret}@nobody.invalid/0", UnreachableError, "NameNotResolved"),
        ("redis+sentinel://:{secret}@127.0.0.1:{free}/shop/0", UnreachableError, "ConnectionRefused"),
        (
            "rediss+sentinel://:{secret}@{at}/shop/0?sentinel_password={secret}&ssl_ca_certs={ca}",
            MissingError,
            "NoSentinel",
        ),
        ("rediss+cluster://:{secret}@{at}?ssl_ca_certs={ca}", MissingError, "NoCluster"),
        ("redis+cluster://:{secret}@127.0.0.1:{free}", UnreachableError, "ConnectionRefused"),
    ],
)
async def test_failed_poll_has_the_reason_and_no_secret(
    guarded: RedisServer, url: str, kind: type[SourceError], code: str
) -> None:
    where = {"at": guarded.address, "ca": guarded.tls_ca, "secret": QUOTED, "free": free_port()}
    worker = source(url.format(**where), atomic=False, queue=RedisQueue("{shop}", "{shop}pack", block_seconds=0.02))

    with pytest.raises(kind) as raised:
        await worker.lease("w")

    assert raised.value.code == code
    assert "s3cret" not in f"{raised.value} {raised.value.__cause__!r} {worker!r}"
    await worker.close()


async def test_tls_errors_differ_from_an_unreachable_server(server: RedisServer, guarded: RedisServer) -> None:
    secure = source(f"rediss://127.0.0.1:{server.port}?socket_connect_timeout=0.5", atomic=False)
    plain = source(guarded.url.partition("?")[0].replace("rediss", "redis"), atomic=False)

    with pytest.raises(UnreachableError, match="TlsFailed: no TLS handshake in time"):
        await secure.lease("w")
    with pytest.raises(UnreachableError, match=r"ConnectionLost: .*rediss://"):
        await plain.lease("w")

    await secure.close()
    await plain.close()


async def test_silent_server_times_out_and_is_used_again_later() -> None:
    with redis_server() as own:
        # Long enough for a slow machine, because two of the calls must be answered.
        worker = source(f"{own.url}?socket_timeout=2", atomic=False)
        assert await worker.lease("w") is None
        own.freeze()

        with pytest.raises(UnreachableError, match="AnswerTimeout"):
            await worker.lease("w")

        own.thaw()
        assert await worker.lease("w") is None
        await worker.close()


async def test_key_of_another_type_is_reported_without_its_content(server: RedisServer) -> None:
    asking = open_client(server.url)
    await asking.call("FLUSHALL")
    await asking.call("SET", "queue:pack:waiting", "a payload")
    worker = source(server.url, atomic=False)

    with pytest.raises(SourceError, match="WRONGTYPE") as raised:
        await worker.lease("w")

    assert "payload" not in str(raised.value)
    await worker.close()
    await asking.close()


async def _blocked(client: RedisClient) -> None:
    """Wait until a client is blocked on the server, which only a query can show."""
    answers = ""
    while "blocked_clients:1" not in answers:
        answers = await client.call("INFO", "clients")


async def test_blocked_poll_does_not_delay_other_calls(server: RedisServer) -> None:
    worker = source(server.url, atomic=False, queue=RedisQueue("shop", "empty", block_seconds=60.0))
    polling = asyncio.create_task(worker.lease("w"))
    other = open_client(server.url)
    async with asyncio.timeout(20):
        await _blocked(other)

    with pytest.raises(LeaseLostError):
        await asyncio.wait_for(worker.heartbeat('["empty","j1","w"]'), 20.0)

    await other.call("RPUSH", "queue:empty:waiting", "j1")
    assert await polling is not None
    await worker.close()
    await other.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[RedisServer, ...]]:
    """Three masters."""
    with redis_cluster() as running:
        yield running


@pytest.fixture
def members(cluster: tuple[RedisServer, ...]) -> tuple[RedisServer, ...]:
    """Empty the cluster."""
    for one in cluster:
        one.say("FLUSHALL")
    return cluster


TAGGED = RedisQueue("{shop}", "{shop}pack", next_queue="{shop}send", block_seconds=0.02)


async def test_job_passes_its_queues_wherever_its_slot_is(members: tuple[RedisServer, ...], atomic: bool) -> None:
    asking = open_client(cluster_url(members))
    for tag in ("{shop}", "{b}", "{c}", "{d}"):
        queue = RedisQueue(tag, f"{tag}pack", next_queue=f"{tag}send", block_seconds=0.02)
        await create(asking, queue=queue)
        worker = source(cluster_url(members[:1]), atomic=atomic, queue=queue)

        assert await work(worker, "succeed", "w") == "done"

        found = await whereabouts(asking, queue=queue)
        assert found.ended_once
        await asking.call("DEL", f"queue:{tag}send:waiting")
        await worker.close()
    await asking.close()


async def test_keys_in_several_slots_are_refused_with_the_fix(members: tuple[RedisServer, ...]) -> None:
    with pytest.raises(ValueError, match="hash tag"):
        source(cluster_url(members), atomic=False)

    asking = open_client(cluster_url(members))
    await create(asking, queue=TAGGED)
    worker = source(cluster_url(members), atomic=False, queue=TAGGED)
    task = await worker.lease("w")
    assert task is not None
    with pytest.raises(SourceError, match=r"CROSSSLOT: .*hash tag"):
        await worker.succeed(task.token, '{"nextQueue":"elsewhere"}')
    await worker.succeed(task.token, "{}")
    with pytest.raises(RedisError, match="CROSSSLOT"):
        await asking.transaction([("SET", "a", 1), ("SET", "b", 1)])
    await worker.close()
    await asking.close()


async def test_slot_that_moves_to_another_node_is_found(members: tuple[RedisServer, ...], atomic: bool) -> None:
    asking = open_client(cluster_url(members))
    await create(asking, queue=TAGGED)
    worker = source(cluster_url(members), atomic=atomic, queue=TAGGED)
    task = await worker.lease("w")
    assert task is not None
    await asyncio.to_thread(_move_slot, members, "{shop}")

    assert await work(worker, "succeed", "w") in {"nothing", "refused"}  # the poll learns the queue's new node
    await worker.succeed(task.token, "{}")

    assert (await whereabouts(asking, queue=TAGGED)).ended_once
    await asking.call("DEL", "queue:{shop}send:waiting")
    await worker.close()
    await asking.close()


def _move_slot(members: tuple[RedisServer, ...], key: str) -> None:
    """Move the slot of a key, with its data, to another node."""
    slot = members[0].say("CLUSTER", "KEYSLOT", key)
    ids = {one.port: one.say("CLUSTER", "MYID") for one in members}
    holder = next(one for one in members if one.say("CLUSTER", "COUNTKEYSINSLOT", slot) != "0")
    taker = next(one for one in members if one is not holder)
    taker.say("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[holder.port])
    holder.say("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[taker.port])
    keys = holder.say("CLUSTER", "GETKEYSINSLOT", slot, "100").split()
    holder.say("MIGRATE", "127.0.0.1", str(taker.port), "", "0", "5000", "KEYS", *keys)
    for one in members:
        one.say("CLUSTER", "SETSLOT", slot, "NODE", ids[taker.port])


@pytest.mark.timeout(180)
async def test_failover_during_work_loses_no_job(atomic: bool) -> None:
    """The master is lost between a job's lease and its end, and while a poll waits; its data has reached the replica.

    The sentinels name the new master.
    """
    with redis_with_sentinels(password="x") as group:
        asking = open_client(group.url)
        for number in range(6):
            await create(asking, f"j{number}")
        workers = [source(f"{group.url}?socket_timeout=1", atomic=atomic) for _ in range(3)]
        tasks = [task for worker in workers[:2] if (task := await worker.lease("w")) is not None]
        assert len(tasks) == 2
        await asking.call("WAIT", 1, 5000)
        await asyncio.to_thread(group.master.kill)

        async def finish(worker: RedisSource, token: str) -> None:
            await conclude(lambda: worker.succeed(token, "{}"), lost=lambda: None, for_seconds=30)

        await asyncio.gather(*(finish(worker, task.token) for worker, task in zip(workers, tasks, strict=False)))
        for _ in range(40):
            if await work(workers[2], "succeed", "w", patient=True) == "nothing":
                break
        await monitor(asking)

        for number in range(6):
            found = await whereabouts(asking, f"j{number}")
            assert found.ended_once, (number, found)
        for worker in workers:
            await worker.close()
        await asking.close()


async def test_lost_job_of_a_cluster_is_put_back(members: tuple[RedisServer, ...]) -> None:
    asking = open_client(cluster_url(members))
    await create(asking, queue=TAGGED)
    await asking.call("LMOVE", keys.waiting(TAGGED.name), keys.processing(TAGGED.name), "LEFT", "RIGHT")
    await recover(asking, TAGGED)

    assert (await whereabouts(asking, queue=TAGGED)).waiting == 1
    await asking.call("DEL", keys.waiting(TAGGED.name))
    await asking.close()


async def test_url_of_one_cluster_node_is_refused_with_the_right_form(
    members: tuple[RedisServer, ...], atomic: bool
) -> None:
    """Other nodes refuse with the form for clusters; the node with the queue serves it."""
    answers = []
    for one in members:
        worker = source(one.url, atomic=atomic, queue=TAGGED)
        try:
            answers.append(str(await worker.lease("w")))
        except UnreachableError as error:
            answers.append(str(error))
        await worker.close()

    assert sorted("redis+cluster://" in words for words in answers) == [False, True, True]
