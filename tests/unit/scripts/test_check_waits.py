"""The check of waits finds planted waits, and accepts what is not a wait."""

from pathlib import Path

import pytest

from tests.scripts.check_waits import PATTERNS, complaints, find

POLLING = """
import asyncio, time

class Stage:
    async def until(self, holds):
        while not holds():
            await asyncio.sleep(0.1)

def wait(holds):
    while True:
        if holds():
            return
        time.sleep(0.1)

def tries(holds):
    for _ in range(10):
        if holds():
            break
        time.sleep(0.1)
"""
SLEEPING = """
from asyncio import sleep

async def test_pool_grows():
    grow()
    await sleep(2)
    assert grown()
"""
HARMLESS = """
import asyncio

async def test_worker_runs_its_handler():
    async def handler(request):
        await asyncio.sleep(request.seconds)

    await asyncio.sleep(0)

async def beat(strikes):
    while True:
        await asyncio.sleep(1)
    for strike in strikes:
        await asyncio.sleep(strike.gap)

async def drain(queue):
    while queue:
        await queue.pop()
"""


def plant(folder: Path, name: str, text: str) -> Path:
    """Write a module and return its folder."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


def test_polling_loops_are_found_in_methods_and_functions(tmp_path: Path) -> None:
    found = find(plant(tmp_path, "stage.py", POLLING))

    assert [(one.line, one.function) for one in found] == [(6, "Stage.until"), (10, "wait"), (16, "tries")]
    assert {one.problem for one in found} == {PATTERNS["polling loop"].problem}
    assert str(found[0]).startswith("tests/stage.py:6: Stage.until: a polling loop of its own: use eventually()")


def test_sleep_in_a_test_function_is_found(tmp_path: Path) -> None:
    (found,) = find(plant(tmp_path, "suite/test_pool.py", SLEEPING))

    assert (found.path, found.line, found.function) == ("suite/test_pool.py", 6, "test_pool_grows")
    assert found.problem == PATTERNS["sleep in a test"].problem


def test_sleeps_in_handlers_beats_and_of_zero_seconds_are_accepted(tmp_path: Path) -> None:
    assert find(plant(tmp_path, "test_worker.py", HARMLESS)) == []


@pytest.mark.parametrize("clock", ["conftest.py", "suite/conftest.py"])
def test_modules_in_virtual_time_are_left_out(tmp_path: Path, clock: str) -> None:
    plant(tmp_path, "suite/test_pool.py", SLEEPING)
    plant(tmp_path, clock, "from tests.clock import VirtualLoop")

    assert find(tmp_path) == []


def test_allowed_wait_is_accepted_and_unused_allowance_is_reported(tmp_path: Path) -> None:
    found = find(plant(tmp_path, "test_pool.py", SLEEPING))
    allowed = {("test_pool.py", "test_pool_grows"): "it takes its time", ("stage.py", "wait"): "it is gone"}

    assert complaints(found, allowed) == ["tests/stage.py: wait: ALLOWED names it, and it has no such wait"]
    assert len(complaints(found, {})) == 1
