"""Pushes over real gRPC, on both stores: a broker, and a source to which it pushes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from activity_worker.config.sources import PUSH, TaskbrokerSettings
from activity_worker.contract import LeasedTask
from activity_worker.sources.taskbroker_push import TaskbrokerPushSource
from activity_worker.task import RetryRequest
from activity_worker.taskbroker.broker.listed_workers import ListedWorkers
from activity_worker.taskbroker.broker.service import Delivery
from activity_worker.taskbroker.cli.broker_process import BrokerOptions, running_broker
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol import messages
from activity_worker.taskbroker.protocol.activation import RetryState
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerChannel, TaskbrokerError
from activity_worker.taskbroker.store.broker_store import BrokerPolicy, BrokerStore
from activity_worker.taskbroker.store.statements import TaskFilter
from tests.cluster import certificates
from tests.eventually import eventually
from tests.integration.broker.test_process import client, refused

SECONDS = 60.0
HOST = "127.0.0.1"
OPTIONS = BrokerOptions(f"{HOST}:0", policy=BrokerPolicy(grace_seconds=0.5), deadline_pause_seconds=0.0)


def settings(*ports: int, **fields: Any) -> TaskbrokerSettings:
    addresses = tuple(f"{HOST}:{port}" for port in ports)
    given = {"delivery": PUSH, "push_address": f"{HOST}:0", "advertise": HOST, **fields}
    return TaskbrokerSettings(addresses, **given)


@asynccontextmanager
async def source(*ports: int, **fields: Any) -> AsyncIterator[TaskbrokerPushSource]:
    opened = await TaskbrokerPushSource.open(settings(*ports, **fields))
    try:
        yield opened
    finally:
        await opened.close()


async def put(port: int, *ids: str, secrets: Sequence[str] = (), **fields: Any) -> None:
    tasks = [NewTask("mail", "send", id=one, **fields) for one in ids]
    async with TaskProducer(ChannelSettings(f"{HOST}:{port}", secrets)) as producer:
        await producer.enqueue(tasks)


async def lease(worker: TaskbrokerPushSource) -> LeasedTask:
    """Poll until a task is pushed."""
    async with asyncio.timeout(SECONDS):
        while (task := await worker.lease("test")) is None:
            pass
    return task


def id_of(task: LeasedTask) -> str:
    return task.token.split("/")[-2]


async def states(url: str) -> dict[ActivationState, int]:
    store = await BrokerStore.open(url)
    try:
        return {depth.state: depth.count for depth in await store.depths()}
    finally:
        await store.close()


async def until_empty(url: str) -> None:
    async def empty() -> bool:
        return not await states(url)

    await eventually("the store is empty", empty, seconds=SECONDS)


async def test_task_is_pushed_to_a_slot_and_its_report_completes_it(url: str) -> None:
    async with running_broker(url, OPTIONS) as port, source(port) as worker:
        await put(port, "one", kwargs={"to": "me"})
        task = await lease(worker)
        assert (id_of(task), task.input) == ("one", '{"to":"me"}')

        async def delivered() -> bool:
            return await states(url) == {ActivationState.PROCESSING: 1}

        await eventually("the broker knows that the push was accepted", delivered)
        await worker.succeed(task.token, "")
        await until_empty(url)


async def test_report_that_overtakes_the_brokers_own_write_counts(url: str) -> None:
    async with running_broker(url, OPTIONS) as port, source(port) as worker:
        await put(port, *(f"task-{number}" for number in range(50)))
        seen = set()
        for _ in range(50):
            task = await lease(worker)
            await worker.succeed(task.token, "")
            seen.add(id_of(task))
        await until_empty(url)
    assert len(seen) == 50


async def test_worker_gets_no_more_tasks_than_it_has_slots(url: str) -> None:
    async with running_broker(url, OPTIONS) as port, source(port) as worker:
        polls = [asyncio.create_task(lease(worker)) for _ in range(2)]
        await put(port, *"abcde")
        first = await asyncio.gather(*polls)
        # The broker may still have to write that a push was accepted: CLAIMED becomes PROCESSING then.
        counts = await states(url)
        taken = counts.pop(ActivationState.PROCESSING, 0) + counts.pop(ActivationState.CLAIMED, 0)
        assert (taken, counts) == (2, {ActivationState.PENDING: 3})
        for task in first:
            await worker.succeed(task.token, "")
        for _ in range(3):
            await worker.succeed((await lease(worker)).token, "")
        await until_empty(url)


async def test_tasks_spread_over_workers_by_what_they_take(url: str) -> None:
    async with (
        running_broker(url, OPTIONS) as port,
        source(port, namespace="mail") as mail,
        source(port, application="shop", namespace="mail") as shop,
    ):
        await put(port, "one", application="shop")
        assert id_of(await lease(shop)) == "one"
        await put(port, "two")
        assert id_of(await lease(mail)) == "two"


async def test_retry_of_a_pushed_task_is_pushed(url: str) -> None:
    async with running_broker(url, OPTIONS) as port, source(port) as worker:
        await put(port, "one", retry=RetryState(max_attempts=3))
        await worker.fail_with_retry((await lease(worker)).token, "Error", "", RetryRequest(wanted=True))
        again = await lease(worker)
        assert id_of(again) != "one"
        await worker.succeed(again.token, "")
        await until_empty(url)


async def test_cordoned_worker_takes_no_push_and_its_task_goes_to_another(url: str) -> None:
    async with running_broker(url, OPTIONS) as port, source(port) as leaving, source(port) as other:
        await put(port, "one")
        task = await lease(leaving)
        leaving.cordon(True)
        assert await leaving.lease("test") is None
        await put(port, "two")
        assert id_of(await lease(other)) == "two"
        await leaving.succeed(task.token, "")
        leaving.cordon(False)
        await other.close()
        await put(port, "three")
        assert id_of(await lease(leaving)) == "three"


async def test_busy_worker_costs_a_task_no_attempt(url: str) -> None:
    async with running_broker(url, OPTIONS) as port, source(port, advertise=None) as worker:
        polling = asyncio.create_task(lease(worker))
        listed = ListedWorkers(TaskFilter(), (f"localhost:{worker.port}",))
        options = replace(OPTIONS, delivery=Delivery.PUSH, worker_map=(listed,))
        async with running_broker(url, options) as pushing:
            await put(pushing, "one", "two")
            first = await polling
            store = await BrokerStore.open(url)

            async def released() -> bool:
                found = await store.get("two")
                return found is not None and found.state is ActivationState.CLAIMED

            await eventually("the second task is claimed", released)
            await worker.succeed(first.token, "")
            second = await lease(worker)
            found = await store.get(id_of(second))
            await store.close()
            assert (id_of(second), found.attempts if found else None) == ("two", 1)
            await refused("PERMISSION_DENIED", pull(pushing))


async def pull(port: int) -> None:
    async with client(port) as pulling:
        await pulling.get()


async def test_push_needs_a_signature_of_any_of_the_workers_secrets(url: str) -> None:
    path = f"/{messages.WORKER_SERVICE}/PushTask"
    async with source(1, secrets=("new", "old"), advertise=None) as worker:
        polling = asyncio.create_task(lease(worker))
        request = messages.PushTaskRequest()
        request.task.id, request.task.namespace, request.task.taskname = "one", "mail", "send"
        for secrets in ((), ("other",)):
            channel = TaskbrokerChannel(ChannelSettings(f"{HOST}:{worker.port}", secrets))
            with pytest.raises(TaskbrokerError, match="UNAUTHENTICATED: Authentication failed"):
                await channel.call(path, request, messages.PushTaskResponse)
            await channel.close()
        channel = TaskbrokerChannel(ChannelSettings(f"{HOST}:{worker.port}", ("old",)))
        await channel.call(path, request, messages.PushTaskResponse)
        assert id_of(await polling) == "one"
        # The same task again, as from a broker that has not heard of its success: it is not run twice.
        await channel.call(path, request, messages.PushTaskResponse)
        request.task.id = "two"
        with pytest.raises(TaskbrokerError, match="RESOURCE_EXHAUSTED: worker busy"):
            await channel.call(path, request, messages.PushTaskResponse)
        await channel.close()


async def test_pushes_over_tls_to_workers_with_one_name(url: str, tmp_path: Path) -> None:
    authority = certificates.authority(tmp_path, "ca")
    issued = certificates.issue(authority, tmp_path, "workers", user="workers", addresses=["workers"])
    options = replace(
        OPTIONS,
        secrets=("ruby",),
        worker_tls_root=authority.certificate_file.read_bytes(),
        worker_tls_name="workers",
    )
    tls = issued.key.read_bytes(), issued.certificate.read_bytes()
    async with running_broker(url, options) as port, source(port, secrets=("ruby",), push_tls=tls) as worker:
        await put(port, "one", secrets=("ruby",))
        assert id_of(await lease(worker)) == "one"


async def test_task_of_one_of_two_brokers_is_reported_there(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("first", "second")]
    async with (
        running_broker(urls[0], OPTIONS) as first,
        running_broker(urls[1], OPTIONS) as second,
        source(first, second) as worker,
    ):
        await put(second, "one")
        await worker.succeed((await lease(worker)).token, "")
        await put(first, "two")
        await worker.succeed((await lease(worker)).token, "")
        for url in urls:
            await until_empty(url)


async def test_broker_that_pulls_takes_no_registration(url: str) -> None:
    request = messages.RegisterWorkerRequest(address="worker:50052", slots=1)
    path = f"/{messages.WORKER_MAP_SERVICE}/RegisterWorker"
    for delivery, code in ((Delivery.PULL, "FAILED_PRECONDITION"), (Delivery.BOTH, None)):
        async with running_broker(url, replace(OPTIONS, delivery=delivery)) as port, client(port) as broker:
            call = broker.channel.call(path, request, messages.RegisterWorkerResponse)
            if code is None:
                assert (await call).seconds == 30
                request.address = "unix:/run/worker.sock"
                again = broker.channel.call(path, request, messages.RegisterWorkerResponse)
                assert "address is not HOST:PORT" in await refused("INVALID_ARGUMENT", again)
            else:
                assert "this broker pushes no tasks" in await refused(code, call)
