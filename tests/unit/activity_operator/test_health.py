"""Logs of the health probes, and the rendering of the metrics beside the main loop."""

import asyncio
import logging
import threading
import time

import pytest

from activity_operator.health import OperatorHealthServer, ThreadedPage


def test_failed_check_is_logged_when_it_begins_changes_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    wrong: dict[str, str] = {}
    checks = {name: lambda name=name: wrong.get(name, "") for name in ("watch", "sweep")}
    server = OperatorHealthServer(checks, {}, lambda: b"", "", 0)
    caplog.set_level(logging.INFO)
    answers = []
    for now in ({}, {"watch": "60 s"}, {"watch": "65 s"}, {"watch": "70 s", "sweep": "90 s"}, {}, {}):
        wrong.clear()
        wrong.update(now)
        caplog.clear()
        status = server._answer("/livez", checks).status
        answers.append((status, [line.getMessage() for line in caplog.records]))

    assert answers == [
        (200, []),
        (503, ["/livez fails: watch: 60 s"]),
        (503, []),
        (503, ["/livez fails: watch: 70 s\nsweep: 90 s"]),
        (200, ["/livez succeeds again"]),
        (200, []),
    ]


async def test_metrics_are_rendered_in_a_thread_once_for_all_scrapes_meanwhile() -> None:
    release, threads = threading.Event(), []

    def make() -> bytes:
        threads.append(threading.get_ident())
        assert release.wait(5)
        return b"page %d" % len(threads)

    page = ThreadedPage(make, clock=lambda: 0.0)
    scrapes = [asyncio.create_task(page()) for _ in range(3)]
    await asyncio.sleep(0)
    scrapes.pop().cancel()
    release.set()

    assert await asyncio.gather(*scrapes) == [b"page 1", b"page 1"]
    assert threading.get_ident() not in threads


async def test_metrics_are_rendered_for_a_tenth_of_the_time() -> None:
    now, made = 0.0, 0

    def make() -> bytes:
        nonlocal made
        made += 1
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return str(made).encode()

    page = ThreadedPage(make, clock=lambda: now)
    assert await page() == b"1"
    now = 0.1
    assert await page() == b"1"
    now = 60.0
    assert await page() == b"2"


async def test_failed_rendering_is_tried_again() -> None:
    answers = iter((ValueError("a bug"), b"page"))

    def make() -> bytes:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    page = ThreadedPage(make)
    with pytest.raises(ValueError, match="a bug"):
        await page()
    assert await page() == b"page"
