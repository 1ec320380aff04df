"""Metrics of the main loop: its lag, and the length of the queue."""

import asyncio
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from activity_operator import process as module
from activity_operator.cluster.workqueue import WorkQueue
from activity_operator.core.tenancy import TenancyPolicy
from activity_operator.metrics import Metrics
from activity_operator.process import TICK_SECONDS, Process
from activity_operator.settings import OperatorSettings


async def test_late_tick_sets_the_loop_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop spends 0.25 s on something else than the sleep."""
    times = iter((100.0, 100.0 + TICK_SECONDS + 0.25))
    beaten = asyncio.Event()
    metrics = Metrics("test")
    monkeypatch.setattr(module, "clock", lambda: next(times, 0.0))
    monkeypatch.setattr(module, "TICK_SECONDS", 1.0)
    parts: dict[str, Any] = {part.name: None for part in fields(Process)}
    parts |= {"settings": OperatorSettings(), "metrics": metrics, "policy": TenancyPolicy}
    process = Process(**{**parts, "elector": SimpleNamespace(leading=True, reachable=True)})
    monkeypatch.setattr(asyncio, "sleep", _asleep(beaten))
    beating = asyncio.create_task(process._tick())
    await beaten.wait()
    beating.cancel()

    assert "activitypool_loop_lag_seconds 0.25" in metrics.render().decode()


def _asleep(beaten: asyncio.Event) -> Any:
    """Return a sleep that returns at once the first time, and sets `beaten` the second time."""
    naps = iter((True,))

    async def sleep(_: float) -> None:
        if next(naps, False):
            return
        beaten.set()
        await asyncio.Event().wait()

    return sleep


async def test_queue_length_is_read_when_metrics_are_rendered() -> None:
    metrics, queue = Metrics("test"), WorkQueue(lambda: 0.0)
    metrics.queue_length.set_function(queue.__len__)
    queue.add(("ns", "a"))
    queue.add(("ns", "b"))

    assert "activitypool_queue_length 2.0" in metrics.render().decode()
