"""Calls that wait at a broker for a task, on both stores."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.request import urlopen

import pytest

from activity_worker.taskbroker.broker_calls import BrokerCalls
from activity_worker.taskbroker.cli.broker_process import BrokerOptions, running_broker
from activity_worker.taskbroker.lifecycle.inflight import Outcome
from activity_worker.taskbroker.producer import NewTask, TaskProducer
from activity_worker.taskbroker.protocol.activation import Activation, RetryState, message_of
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerChannel, TaskbrokerError
from activity_worker.taskbroker.protocol.messages import (
    CONSUMER_SERVICE,
    PRODUCER_SERVICE,
    EnqueueRequest,
    EnqueueResponse,
    GetTaskRequest,
    GetTaskResponse,
)
from activity_worker.taskbroker.store.broker_store import BrokerStore
from tests.eventually import eventually
from tests.servers.ports import free_port
from tests.servers.postgres import new_database

LONG = 30.0
ONCE = RetryState(0, 1, at_most_once=True)


class Broker:
    """A broker in this process, a producer, and workers' calls."""

    def __init__(self, stack: AsyncExitStack, url: str) -> None:
        self._stack, self.url, self.health_port = stack, url, free_port()

    async def start(self) -> None:
        options = BrokerOptions("127.0.0.1:0", health_port=self.health_port)
        self.settings = ChannelSettings(
            f"127.0.0.1:{await self._stack.enter_async_context(running_broker(self.url, options))}"
        )
        self.producer = await self._stack.enter_async_context(TaskProducer(self.settings))

    def calls(self, **wanted: str) -> BrokerCalls:
        return BrokerCalls(TaskbrokerChannel(self.settings), wanted, lambda _: None)

    async def until_waiting(self, number: int) -> None:
        def waiting() -> bool:
            with urlopen(f"http://127.0.0.1:{self.health_port}/metrics", timeout=10) as answer:
                return f"activity_broker_waiting_calls {float(number)}\n" in answer.read().decode()

        async def found() -> bool:
            return await asyncio.to_thread(waiting)

        await eventually(f"{number} calls wait", found)


@pytest.fixture
async def broker(url: str) -> AsyncIterator[Broker]:
    async with AsyncExitStack() as stack:
        made = Broker(stack, url)
        await made.start()
        yield made


async def finds_nothing(*_: Any) -> tuple[Counter[Outcome], Sequence[Any]]:
    """Look into no store: a call that looks gets no offer, and a look into a store takes its time."""
    return Counter(), ()


class HeldCall:
    """A method of the stores whose results are held back: `done` is set once there is one, `answer` lets it go."""

    def __init__(self, patches: pytest.MonkeyPatch, method: str) -> None:
        self.done, self.answer = asyncio.Event(), asyncio.Event()
        call = getattr(BrokerStore, method)

        async def held(store: BrokerStore, *arguments: Any) -> Any:
            found = await call(store, *arguments)
            self.done.set()
            await self.answer.wait()
            return found

        patches.setattr(BrokerStore, method, held)


async def given_up(call: asyncio.Task[Any]) -> None:
    """Cancel a call, and wait for its end."""
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


def ids(found: Sequence[Activation]) -> list[str]:
    return [one.id for one in found]


async def test_waiting_call_gets_the_task_that_is_added(broker: Broker) -> None:
    calls = broker.calls(namespace="mail")
    waits = asyncio.create_task(calls.get(5, LONG))
    await broker.until_waiting(1)
    await broker.producer.enqueue([NewTask("image", "scale", id="other"), NewTask("mail", "send", id="one")])
    assert ids(await waits) == ["one"]
    await broker.until_waiting(0)
    await calls.close()


async def test_waiting_call_gets_a_task_in_the_transaction_that_adds_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = broker.calls()
    waits = asyncio.create_task(calls.get(1, LONG))
    await broker.until_waiting(1)

    monkeypatch.setattr(BrokerStore, "exchange", finds_nothing)
    async with asyncio.timeout(60):
        # One that is added in the middle of a look is not offered.
        while not waits.done():
            await broker.producer.enqueue([NewTask("mail", "send")])
    assert len(await waits) == 1
    await calls.close()


async def test_published_call_may_wait_by_its_metadata(broker: Broker) -> None:
    channel = TaskbrokerChannel(broker.settings)
    path = f"/{CONSUMER_SERVICE}/GetTask"
    waits = asyncio.create_task(channel.call(path, GetTaskRequest(), GetTaskResponse, wait_seconds=LONG))
    await broker.until_waiting(1)
    await broker.producer.enqueue([NewTask("mail", "send", id="one")])
    assert (await waits).task.id == "one"
    await channel.close()


async def test_task_after_its_delay_comes_to_a_waiting_call(broker: Broker) -> None:
    calls = broker.calls()
    waits = asyncio.create_task(calls.get(1, LONG))
    await broker.until_waiting(1)
    await broker.producer.enqueue([NewTask("mail", "send", id="late", delay=1)])
    assert ids(await waits) == ["late"]
    await calls.close()


async def test_call_of_a_client_that_has_gone_gets_no_task(broker: Broker) -> None:
    gone, there = broker.calls(), broker.calls()
    waits = asyncio.create_task(gone.get(1, LONG))
    await broker.until_waiting(1)
    # Without a goodbye: the connection ends.
    await gone.close()
    await asyncio.gather(waits, return_exceptions=True)
    await broker.until_waiting(0)
    await broker.producer.enqueue([NewTask("mail", "send", id="once", retry=ONCE)])
    assert ids(await there.get(1, LONG)) == ["once"]
    await there.close()


async def test_task_of_a_call_that_is_given_up_meanwhile_is_given_back(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, there = broker.calls(), broker.calls()
    await broker.producer.enqueue([NewTask("mail", "send", id="once", retry=ONCE)])
    with monkeypatch.context() as patched:
        exchange = HeldCall(patched, "exchange")
        waits = asyncio.create_task(gone.get(1, LONG))
        await exchange.done.wait()
        await given_up(waits)
        await broker.until_waiting(0)
        exchange.answer.set()
    store = await BrokerStore.open(broker.url)

    async def attempts() -> bool:
        found = await store.get("once")
        return found is not None and (found.state, found.attempts, found.deadline) == ("pending", 0, None)

    await eventually("the task is pending, without an attempt", attempts)
    assert ids(await there.get(1, LONG)) == ["once"]
    await store.close()
    await gone.close()
    await there.close()


async def test_task_is_given_back_if_its_call_goes_while_it_is_added(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, there = broker.calls(), broker.calls()
    monkeypatch.setattr(BrokerStore, "exchange", finds_nothing)
    waits = asyncio.create_task(gone.get(1, LONG))
    await broker.until_waiting(1)
    addition = HeldCall(monkeypatch, "add_giving")
    adding = asyncio.create_task(broker.producer.enqueue([NewTask("mail", "send", id="once", retry=ONCE)]))
    await addition.done.wait()
    await given_up(waits)
    await broker.until_waiting(0)
    monkeypatch.undo()
    addition.answer.set()
    assert await adding == 1
    assert ids(await there.get(1, LONG)) == ["once"]
    await gone.close()
    await there.close()


async def test_task_comes_to_its_call_if_the_producer_goes_while_it_is_added(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = broker.calls()
    monkeypatch.setattr(BrokerStore, "exchange", finds_nothing)
    waits = asyncio.create_task(calls.get(1, LONG))
    await broker.until_waiting(1)
    addition = HeldCall(monkeypatch, "add_giving")
    adding = asyncio.create_task(broker.producer.enqueue([NewTask("mail", "send", id="once", retry=ONCE)]))
    await addition.done.wait()
    await given_up(adding)
    addition.answer.set()
    assert ids(await waits) == ["once"]
    await calls.close()


async def test_call_goes_on_waiting_after_a_task_that_could_not_be_added(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = broker.calls()
    waits = asyncio.create_task(calls.get(1, LONG))
    await broker.until_waiting(1)

    async def failing(*_: Any) -> Any:
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(BrokerStore, "add_giving", failing)
        patched.setattr(BrokerStore, "add", failing)
        channel = TaskbrokerChannel(broker.settings)
        request = EnqueueRequest(activations=[message_of(NewTask("mail", "send", id="one").activation())])
        with pytest.raises(TaskbrokerError, match="UNAVAILABLE"):
            await channel.call(f"/{PRODUCER_SERVICE}/Enqueue", request, EnqueueResponse)
        await channel.close()
    await broker.producer.enqueue([NewTask("mail", "send", id="two")])
    assert ids(await waits) == ["two"]
    await calls.close()


async def test_broker_that_stops_answers_the_waiting_calls(url: str) -> None:
    async with AsyncExitStack() as stack:
        broker = Broker(stack, url)
        await broker.start()
        calls = broker.calls()
        waits = asyncio.create_task(calls.get(1, LONG))
        await broker.until_waiting(1)
    assert await waits == []
    await calls.close()


async def test_task_that_another_broker_added_comes_to_a_waiting_call(server: str) -> None:
    url = await new_database(server)
    async with AsyncExitStack() as stack:
        first, second = Broker(stack, url), Broker(stack, url)
        await first.start()
        await second.start()
        calls = first.calls()
        waits = asyncio.create_task(calls.get(1, LONG))
        await first.until_waiting(1)
        await second.producer.enqueue([NewTask("mail", "send", id="one")])
        assert ids(await waits) == ["one"]
        await calls.close()
