"""A process that ends by itself is told from one that a test killed, and both are started again."""

import asyncio
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.eventually import eventually
from tests.faults import replicas
from tests.faults.replicas import ForkServer, Replica


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
    await eventually(
        f"{count} processes have begun", lambda: processes.begun >= count and replica.alive, every_seconds=0.001
    )


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


async def test_frozen_process_lives_on_and_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    processes = Processes()
    signals: list[int] = []
    monkeypatch.setattr(replicas, "_end_of", processes.end_of)
    monkeypatch.setattr("os.kill", lambda _, number: signals.append(number))
    replica = Replica(cast("Any", processes), "operator-a", {"report_port": 1}, {}, tmp_path / "log")
    replica.start()
    await _begun(processes, 1, replica)

    replica.freeze()
    assert (signals, len(replica.freezes), replica.alive, replica.ends) == ([signal.SIGSTOP], 1, True, [])

    await replica.stop()


async def test_cancelled_start_leaves_no_process_for_the_next_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that ended while its operator was being started gave the next run's operators each other's processes."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr("os.kill", lambda pid, number: killed.append((pid, number)))
    answers = asyncio.StreamReader()

    asked = asyncio.Event()

    async def drain() -> None:
        asked.set()

    fork_server = ForkServer(
        cast("Any", SimpleNamespace(stdin=SimpleNamespace(write=len, drain=drain), stdout=answers))
    )
    impatient = asyncio.create_task(fork_server.fork({}))
    await asked.wait()
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    patient = asyncio.create_task(fork_server.fork({}))
    answers.feed_data(b"11\n22\n")

    assert await patient == 22
    assert killed == [(11, signal.SIGKILL)]
