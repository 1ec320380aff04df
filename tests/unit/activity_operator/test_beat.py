"""The main loop's beat says how late it comes, and the queue how long it is."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activity_operator import process as module
from activity_operator.cluster.queue import Queue
from activity_operator.core.tenancy import Policy
from activity_operator.metrics import Metrics
from activity_operator.process import TICK_SECONDS, Process
from activity_operator.settings import Settings


async def test_a_beat_that_comes_late_says_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.25 s of the loop's time went to something else than the sleep."""
    times = iter((100.0, 100.0 + TICK_SECONDS + 0.25))
    beaten = asyncio.Event()
    metrics = Metrics("test")
    monkeypatch.setattr(module, "clock", lambda: next(times, 0.0))
    monkeypatch.setattr(module, "TICK_SECONDS", 1.0)
    process = Process(Settings(), cast("Any", None), metrics, cast("Any", None), Policy)
    process.elector = cast("Any", SimpleNamespace(leading=True, reachable=True))
    monkeypatch.setattr(asyncio, "sleep", _asleep(beaten))
    beating = asyncio.create_task(process._tick())
    await beaten.wait()
    beating.cancel()

    assert "activitypool_loop_lag_seconds 0.25" in metrics.render().decode()


def _asleep(beaten: asyncio.Event) -> Any:
    """Return a sleep that ends at once the first time, and tells of the second."""
    naps = iter((True,))

    async def sleep(_: float) -> None:
        if next(naps, False):
            return
        beaten.set()
        await asyncio.Event().wait()

    return sleep


async def test_the_queue_s_length_is_what_it_is_when_somebody_asks() -> None:
    metrics, queue = Metrics("test"), Queue(lambda: 0.0)
    metrics.queue_length.set_function(queue.__len__)
    queue.add(("ns", "a"))
    queue.add(("ns", "b"))

    assert "activitypool_queue_length 2.0" in metrics.render().decode()
