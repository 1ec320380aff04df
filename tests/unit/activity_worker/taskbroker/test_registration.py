"""A worker's registrations with a broker that answers in memory."""

import asyncio
from typing import Any

from activity_worker.taskbroker.protocol.messages import RegisterWorkerResponse
from activity_worker.taskbroker.push.registration import Registrations, WorkerRoom
from tests.eventually import eventually


class Broker:
    """Takes every registration, for an hour."""

    def __init__(self) -> None:
        self.slots: list[int] = []

    async def call(self, _: str, request: Any, *__: Any, **___: Any) -> Any:
        self.slots.append(request.slots)
        return RegisterWorkerResponse(seconds=3600)


def registrations(broker: Broker) -> Registrations:
    channels: dict[str, Any] = {"broker:50051": broker}
    return Registrations("worker:1", channels, {}, lambda: WorkerRoom(slots=2, busy=0))


async def test_change_is_told_at_once() -> None:
    broker = Broker()
    kept = registrations(broker)
    running = asyncio.create_task(kept.run())
    await eventually("it is registered", lambda: broker.slots == [2])

    kept.changed()

    await eventually("it is registered again", lambda: broker.slots == [2, 2])
    running.cancel()


async def test_run_that_is_cancelled_at_the_moment_of_a_change_ends() -> None:
    """A worker that stops would wait for it for ever."""
    broker = Broker()
    kept = registrations(broker)
    running = asyncio.create_task(kept.run())
    await eventually("it is registered", lambda: broker.slots == [2])

    kept.changed()
    running.cancel()
    await asyncio.wait((running,), timeout=5)

    assert running.cancelled()
    assert broker.slots == [2]
