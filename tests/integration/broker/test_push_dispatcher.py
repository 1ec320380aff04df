"""A dispatcher that stops, freezes or fails at any await: which tasks are released, and that a failure shows."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from activity_worker.taskbroker.broker import push_dispatcher
from activity_worker.taskbroker.broker.push_client import PushClient
from activity_worker.taskbroker.broker.push_dispatcher import CLAIM_SECONDS, PushDispatcher
from activity_worker.taskbroker.broker.push_results import PushResults
from activity_worker.taskbroker.broker.worker_map import Registration
from activity_worker.taskbroker.lifecycle.inflight import admit
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.store import claims
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.claims import Claim
from activity_worker.taskbroker.store.statements import TaskFilter
from tests.clock import Clock
from tests.eventually import eventually
from tests.unit.activity_worker.taskbroker.activations import activation_bytes


class Worker(PushClient):
    """A worker that accepts every push."""

    def __init__(self) -> None:
        self.pushed: list[bytes] = []

    @property
    def connected(self) -> bool:
        return True

    async def push(self, data: bytes, callback_url: str) -> None:
        self.pushed.append(data)

    async def is_serving(self) -> bool:
        return True

    async def close(self) -> None:
        pass


async def stop(running: "asyncio.Task[None]") -> None:
    running.cancel()
    await asyncio.wait((running,))


async def state_of(store: BrokerStore) -> tuple[ActivationState, int]:
    """Return the state of the task, and how often it was given out."""
    found = await store.get("one")
    assert found is not None
    return found.state, found.attempts


@pytest.fixture
async def worker(store: BrokerStore) -> Worker:
    """Add a task, and return the worker for it."""
    await store.add([admit(activation_bytes(), store.clock())])
    return Worker()


def dispatcher(store: BrokerStore, worker: Worker, monotonic: Clock) -> PushDispatcher:
    made = PushDispatcher(store, lambda _: worker, monotonic=monotonic)
    assert made.register(Registration("worker:1", TaskFilter(), slots=1))
    return made


async def test_task_that_is_claimed_while_the_broker_stops_is_released(
    store: BrokerStore, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An at-most-once task would fail although no worker has seen it."""
    claimed, answered = asyncio.Event(), asyncio.Event()

    async def claim_slowly(*call: Any) -> Sequence[Claim]:
        found = await claims.claim_tasks(*call)
        claimed.set()
        await answered.wait()
        return found

    monkeypatch.setattr(push_dispatcher, "claim_tasks", claim_slowly)
    running = asyncio.create_task(dispatcher(store, worker, Clock()).run())
    await claimed.wait()
    assert await state_of(store) == (ActivationState.CLAIMED, 1)
    asyncio.get_running_loop().call_soon(answered.set)
    await stop(running)

    assert (await state_of(store), worker.pushed) == ((ActivationState.PENDING, 0), [])


async def test_broker_that_stops_at_the_moment_of_a_change_ends(store: BrokerStore, worker: Worker) -> None:
    made = dispatcher(store, worker, Clock())
    running = asyncio.create_task(made.run())
    await eventually("the task is pushed", lambda: worker.pushed)

    made.register(Registration("worker:2", TaskFilter(), slots=1))
    running.cancel()
    await asyncio.wait((running,), timeout=5)

    assert running.cancelled()


async def test_task_that_a_frozen_broker_never_sent_is_released(
    store: BrokerStore, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monotonic = Clock()
    found: list[Claim] = []

    async def claim_and_freeze(*call: Any) -> Sequence[Claim]:
        taken = () if found else await claims.claim_tasks(*call)
        found.extend(taken)
        monotonic.now += CLAIM_SECONDS
        return taken

    monkeypatch.setattr(push_dispatcher, "claim_tasks", claim_and_freeze)
    running = asyncio.create_task(dispatcher(store, worker, monotonic).run())

    async def released() -> bool:
        return bool(found) and await state_of(store) == (ActivationState.PENDING, 0)

    await eventually("the claim is released", released)
    await stop(running)
    assert worker.pushed == []


async def test_dispatcher_ends_with_what_ends_the_writing_of_results(
    store: BrokerStore, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task ended unseen before: no claim was delivered any more, and every task was pushed again."""

    async def fault(*_: Any) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(PushResults, "_write", fault)
    made = dispatcher(store, worker, Clock())
    assert not made.ended
    with pytest.raises(RuntimeError, match="a fault"):
        async with asyncio.timeout(20):
            await made.run()
    assert (made.ended, len(worker.pushed)) == (True, 1)
