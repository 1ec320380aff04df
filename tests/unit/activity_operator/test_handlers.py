"""When kopf ends by itself: a moment's trouble begins it anew, and only what does not pass ends the process."""

import asyncio
from typing import Any

import kopf
import pytest

from activity_operator import handlers
from activity_operator.handlers import MOST_ENDS, Watcher


class Kopf:
    """Stands in for kopf's operator: ends with an error for the first `fails` times, then runs until it is stopped."""

    def __init__(self, fails: int) -> None:
        self.fails = fails
        self.begun = 0
        self.runs = asyncio.Event()

    async def __call__(self, *, stop_flag: asyncio.Event, **_: Any) -> None:
        self.begun += 1
        if self.begun <= self.fails:
            raise RuntimeError("Error in the watch-stream: code 500")
        self.runs.set()
        await stop_flag.wait()


@pytest.fixture
async def watcher(monkeypatch: pytest.MonkeyPatch) -> Watcher:
    monkeypatch.setattr(handlers, "AGAIN_SECONDS", 0.0)

    async def load(configuration: Any) -> None:
        raise AssertionError("nobody logs in here")

    return Watcher(load, lambda *_: None, lambda: None, lambda _: None)


async def test_a_watch_that_ends_with_an_error_begins_anew(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server whose storage was away for a moment says 500 in the stream, and kopf ends for good."""
    played = Kopf(fails=2)
    monkeypatch.setattr(kopf, "operator", played)
    watching = asyncio.create_task(watcher._watch())
    await asyncio.wait_for(played.runs.wait(), 5)
    watcher._stop_kopf.set()
    await watching

    assert played.begun == 3


async def test_a_watch_that_ends_again_and_again_ends_for_good(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Kopf(fails=10**6)
    monkeypatch.setattr(kopf, "operator", played)
    with pytest.raises(RuntimeError, match="watch-stream"):
        await asyncio.wait_for(watcher._watch(), 5)

    assert played.begun == MOST_ENDS


async def test_a_watch_that_had_been_steady_is_given_all_its_tries_again(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Kopf(fails=3 * MOST_ENDS)
    monkeypatch.setattr(kopf, "operator", played)
    monkeypatch.setattr(handlers, "STEADY_SECONDS", 0.0)
    watching = asyncio.create_task(watcher._watch())
    await asyncio.wait_for(played.runs.wait(), 5)
    watcher._stop_kopf.set()
    await watching


async def test_a_watch_that_is_told_to_stop_does_not_begin_anew(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Kopf(fails=1)
    monkeypatch.setattr(kopf, "operator", played)
    watcher._stop_kopf.set()
    await asyncio.gather(watcher._watch(), return_exceptions=True)

    assert played.begun == 1
