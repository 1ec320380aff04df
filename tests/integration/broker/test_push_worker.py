"""`activity-worker run` with pushed tasks, and a broker that is killed between its claim and the answer."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from activity_worker.contract import EXIT_OK
from activity_worker.taskbroker.broker.service import Delivery
from activity_worker.taskbroker.cli.broker_process import running_broker
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.producer import TaskProducer
from activity_worker.taskbroker.protocol.channel import ChannelSettings
from activity_worker.taskbroker.protocol.messages import WORKER_SERVICE
from activity_worker.taskbroker.store.broker_store import BrokerStore
from tests.eventually import eventually
from tests.integration.broker.test_worker import HANDLERS, OPTIONS, Shop
from tests.integration.worker.process import stopping, worker
from tests.servers.ports import free_port
from tests.servers.taskbroker import BrokerProcess

HOST = "127.0.0.1"


@pytest.fixture
async def shop(url: str, tmp_path: Path) -> AsyncIterator[Shop]:
    """A broker that gives no task to a worker that asks for one."""
    async with running_broker(url, replace(OPTIONS, delivery=Delivery.PUSH)) as port:
        address = f"{HOST}:{port}"
        store = await BrokerStore.open(url)
        async with TaskProducer(ChannelSettings(address)) as producer:
            yield Shop(address, producer, store, tmp_path / "log")
        await store.close()


def pushed(address: str, *more: str) -> tuple[str, ...]:
    """Return the arguments of a worker that registers with a broker."""
    listens = ("--taskbroker-push-address", f"{HOST}:{free_port()}", "--taskbroker-advertise", HOST)
    return ("run", HANDLERS, "--taskbroker", address, "--taskbroker-delivery", "push", *listens, *more)


async def test_pushed_tasks_run_and_an_endless_loop_loses_its_process(shop: Shop) -> None:
    await shop.put("spin", deadline=1)
    await shop.put("fail", kind="lookup", attempts=9)
    for n in range(4):
        await shop.put("plain", n=n)
    async with worker(*pushed(shop.address, "--slots", "2")):
        await shop.until_empty()

    expected = [["lookup"]] * 2 + [["plain", str(n)] for n in range(4)] + [["spin"]]
    assert sorted(shop.lines()) == expected
    assert await shop.letters() == [("fail", "reported"), ("spin", "reported")]


async def test_stopping_worker_ends_its_pushed_task_and_takes_no_other(shop: Shop, tmp_path: Path) -> None:
    gate, port = tmp_path / "gate", free_port()
    await shop.put("wait", gate=str(gate))
    async with worker(*pushed(shop.address, "--health-port", str(port))) as running:
        await shop.until_lines(1)
        await shop.put("plain", n=1)
        running.process.send_signal(signal.SIGTERM)
        await stopping(port)
        gate.touch()
        assert await running.exit_code() == EXIT_OK

    assert shop.lines() == [["began"], ["ended"]]
    async with worker(*pushed(shop.address)):
        await shop.until_empty()
    assert shop.lines()[2:] == [["plain", "1"]]


async def test_pushed_task_of_a_killed_worker_is_pushed_to_another(shop: Shop, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await shop.put("wait", gate=str(gate), deadline=2)
    async with worker(*pushed(shop.address)) as running:
        await shop.until_lines(1)
        running.process.kill()
        await running.process.wait()
        gate.touch()
    async with worker(*pushed(shop.address)):
        await shop.until_empty()

    assert shop.lines()[-2:] == [["began"], ["ended"]]


@asynccontextmanager
async def silent_worker() -> AsyncIterator[tuple[int, list[bytes]]]:
    """Yield the port of a worker that takes pushes and answers none, and the pushes."""
    pushes: list[bytes] = []

    async def take(body: bytes, _: object) -> bytes:
        pushes.append(body)
        await asyncio.Event().wait()
        return b""

    server = grpc.aio.server()
    call: Any = grpc.unary_unary_rpc_method_handler(take)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(WORKER_SERVICE, {"PushTask": call}),))
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    try:
        yield port, pushes
    finally:
        await server.stop(None)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_task_of_a_broker_killed_during_its_push_is_not_lost(url: str, tmp_path: Path) -> None:
    """Whether the worker has the task is unknown: the task runs again, or fails if it is at-most-once."""
    listed = tmp_path / "workers.json"
    broker = BrokerProcess(url, tmp_path, ("--deadline-pause-seconds", "0", "--worker-map", str(listed)))
    store = await BrokerStore.open(url)
    try:
        async with silent_worker() as (port, pushes):
            entry = {"namespace": "shop", "addresses": [f"{HOST}:{port}"]}
            listed.write_text(json.dumps([entry]))
            await broker.start()
            address = f"{HOST}:{broker.port}"
            async with TaskProducer(ChannelSettings(address)) as producer:
                shop = Shop(address, producer, store, tmp_path / "log")
                await shop.put("plain", n=1)
                await eventually("the task is pushed", lambda: len(pushes) == 1)
                broker.end(signal.SIGKILL)
                assert [depth.state for depth in await store.depths()] == [ActivationState.CLAIMED]
                await broker.start()
                await shop.put("plain", n=2, at_most_once=True)
                await eventually("the other task is pushed", lambda: len(pushes) == 2)
            broker.end(signal.SIGKILL)
        listed.write_text("[]")
        await broker.start()
        async with worker(*pushed(address)):
            await shop.until_empty()
        assert shop.lines() == [["plain", "1"]]
        assert await shop.letters() == [("plain", "deadline")]
    finally:
        broker.stop()
        await store.close()
