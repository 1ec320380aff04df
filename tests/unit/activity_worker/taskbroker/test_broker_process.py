"""The broker as a process."""

import contextlib
import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from activity_worker.taskbroker.cli import broker_process
from activity_worker.taskbroker.cli.broker_process import NEW_OBJECTS, BrokerOptions, serve_until_signal, short_pauses


def test_collections_are_rare_until_the_block_ends() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with short_pauses():
        assert gc.get_threshold() == (NEW_OBJECTS, *before[0][1:])
        assert gc.get_freeze_count() > 1000
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


async def test_broker_that_serves_has_short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds: list[int] = []

    @contextlib.contextmanager
    def observed() -> Iterator[None]:
        with short_pauses():
            thresholds.append(gc.get_threshold()[0])
            os.kill(os.getpid(), signal.SIGTERM)
            yield

    @contextlib.asynccontextmanager
    async def running(*_: object) -> AsyncIterator[int]:
        yield 1

    monkeypatch.setattr(broker_process, "running_broker", running)
    monkeypatch.setattr(broker_process, "short_pauses", observed)
    await serve_until_signal("sqlite://", BrokerOptions("127.0.0.1:0"))
    assert thresholds == [NEW_OBJECTS]
