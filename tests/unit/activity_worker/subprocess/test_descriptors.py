"""A process that cannot be started for want of descriptors makes its handler unusable, which a worker reports."""

import socket
from typing import NoReturn

import pytest

from activity_worker.subprocess import process
from activity_worker.subprocess.oom import OomKillCounter
from activity_worker.subprocess.process import ChildProcess, HandlerUnusableError


@pytest.mark.parametrize(("place", "name"), [(socket, "socketpair"), (process, "open_memory")])
async def test_process_without_descriptors_makes_its_handler_unusable(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str
) -> None:
    """Any other error ended the watch over the slot's processes: the slot went on and failed each of its tasks."""

    def refuse() -> NoReturn:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(place, name, refuse)
    with pytest.raises(HandlerUnusableError, match="Too many open files"):
        await ChildProcess.spawn("module:handler", OomKillCounter())
