"""The memory by which a supervisor knows which task's handler has begun."""

import os
import sys
from collections.abc import Iterator

import pytest

from activity_worker.subprocess.start_flag import StartFlag, open_memory


@pytest.fixture(params=["linux", "darwin"])
def flags(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[StartFlag, StartFlag]]:
    """The flags of both processes, on memory as each system has it."""
    monkeypatch.setattr(sys, "platform", request.param)
    fd = open_memory()
    yield StartFlag(fd), StartFlag(fd)
    os.close(fd)


@pytest.mark.parametrize("number", [0, 1, 254, 255, 256, 2**40])
def test_no_task_handler_has_started_in_new_memory(flags: tuple[StartFlag, StartFlag], number: int) -> None:
    supervisor, child = flags
    assert not supervisor.is_set(number)

    child.set(number)
    assert supervisor.is_set(number)
    assert not supervisor.is_set(number + 1)


def test_memory_survives_its_descriptor_and_the_other_side() -> None:
    fd = open_memory()
    supervisor, child = StartFlag(fd), StartFlag(fd)
    os.close(fd)
    child.set(7)
    del child

    assert supervisor.is_set(7)
