"""Frequent requests for an expensive page use at most a tenth of the processor time."""

from collections.abc import Callable

import pytest

from activity_worker.wire.plain_server import ThrottledCache


class Clock:
    """A clock that the test advances; `spent` is the processor time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.spent = 0.0

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.spent += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def page(clock: Clock, cost: float) -> tuple[ThrottledCache, Callable[[], int]]:
    """Return a page that takes `cost` seconds to render, and a function that counts the renderings."""
    made = 0

    def make() -> bytes:
        nonlocal made
        made += 1
        clock.work(cost)
        return b"%d" % made

    return ThrottledCache(make, clock=lambda: clock.now, spent=lambda: clock.spent), lambda: made


def test_page_is_rendered_at_once_after_a_pause(clock: Clock) -> None:
    sparing, made = page(clock, 0.1)
    for number in range(1, 4):
        assert sparing() == b"%d" % number
        clock.now += 1.0
    assert made() == 3


def test_page_requested_again_at_once_is_the_last_rendering(clock: Clock) -> None:
    sparing, _ = page(clock, 0.1)
    sparing()
    clock.now += 0.89
    assert sparing() == b"1"
    clock.now += 0.02
    assert sparing() == b"2"


def test_flood_of_requests_uses_a_tenth_of_the_time(clock: Clock) -> None:
    sparing, _ = page(clock, 0.2)
    began = clock.now
    while clock.now < began + 100:
        sparing()
        clock.now += 0.001

    assert clock.spent == pytest.approx(10, rel=0.05)
