"""The monitor's reactions, without a server."""

import asyncio
from typing import Any

import pytest

from activity_worker.flows.monitor import LockMonitor, MonitorOptions
from tests.unit.activity_worker.flows.fake_server import AWAY, FakeServer


def unlocked(name: str, *_: Any) -> Any:
    """Answer as a server with one job in progress that has no lock."""
    return {"LRANGE": ["1"], "EXISTS": 0, "HGET": None, "EVAL": 1}[name]


def scripts(server: FakeServer) -> int:
    return sum(command[0] == "EVAL" for command in server.commands)


async def test_locked_jobs_cause_no_script() -> None:
    server = FakeServer(lambda name, *_: {"LRANGE": ["1"], "EXISTS": 1}[name])
    monitor = LockMonitor(server, [("shop", "a")], MonitorOptions(gap_seconds=5.0))

    for now in (0.0, 10.0, 20.0):
        await monitor.look(now)

    assert scripts(server) == 0


async def test_outage_of_the_server_restarts_the_gap() -> None:
    server = FakeServer(unlocked)
    loop = asyncio.get_running_loop()
    monitor = LockMonitor(server, [("shop", "a")], MonitorOptions(look_seconds=0.01, gap_seconds=5.0))
    await monitor.look(loop.time() - 100.0)
    looks = 0

    def away_once(name: str, *rest: Any) -> Any:
        nonlocal looks
        looks += name == "LRANGE"
        if looks == 1:
            raise AWAY
        if looks == 3:
            monitor.stop()
        return unlocked(name, *rest)

    server.reply = away_once
    await asyncio.wait_for(monitor.run(), 5)

    assert (scripts(server), monitor.failed) == (0, 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"look_seconds": 0}, "monitor.look_seconds: 0"),
        ({"gap_seconds": 0}, "monitor.gap_seconds: 0"),
        ({"requeue": -1}, "monitor.requeue: -1"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MonitorOptions(**options)


async def test_pauses_after_failed_looks_grow_and_differ_between_monitors(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float | None] = []
    real = asyncio.timeout

    def timeout(seconds: float | None) -> asyncio.Timeout:
        pauses.append(seconds)
        if len(pauses) == 3:
            monitor.stop()
        return real(0)

    def away(*_: Any) -> Any:
        raise AWAY

    monkeypatch.setattr("activity_worker.flows.monitor.asyncio.timeout", timeout)
    monitor = LockMonitor(FakeServer(away), [("shop", "a")], jitter=lambda: 0.5)
    await monitor.run()

    assert pauses == [1.15, 2.3, pytest.approx(3.45)]
