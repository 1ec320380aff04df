"""A process that ends by itself is told from one that a test killed, and both are started again."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from tests.faults import replicas
from tests.faults.replicas import Replica


class Processes:
    """Processes of cardboard: each lives until it is told to end, or is killed."""

    def __init__(self) -> None:
        self.begun = 0
        self._ends = asyncio.Event()

    async def fork(self, _: object) -> int:
        self.begun += 1
        self._ends = asyncio.Event()
        return self.begun

    async def end_of(self, _: int) -> None:
        await self._ends.wait()

    def end(self, *_: object) -> None:
        self._ends.set()


async def _begun(processes: Processes, count: int, replica: Replica) -> None:
    async with asyncio.timeout(10.0):
        while processes.begun < count or not replica.alive:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)


async def test_only_what_nobody_killed_ended_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    processes = Processes()
    monkeypatch.setattr(replicas, "RESTART_SECONDS", 0.0)
    monkeypatch.setattr(replicas, "_end_of", processes.end_of)
    monkeypatch.setattr("os.kill", processes.end)
    replica = Replica(cast("Any", processes), "operator-a", {"report_port": 1}, {}, tmp_path / "log")
    replica.start()
    await _begun(processes, 1, replica)

    replica.kill()
    await _begun(processes, 2, replica)
    assert (replica.killed, replica.ended) == (1, 0)

    processes.end()
    await _begun(processes, 3, replica)
    assert (replica.killed, replica.ended, len(replica.ends)) == (1, 1, 2)

    await replica.stop()
    assert (replica.alive, replica.ended, processes.begun) == (False, 1, 3)
