"""Who asks for a costly page again and again takes a tenth of the time at most."""

from collections.abc import Callable

import pytest

from activity_worker.wire.plain_server import Sparing


class Clock:
    """Time that passes only when told; `spent` is the processor's."""

    def __init__(self) -> None:
        self.now = 100.0
        self.spent = 0.0

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.spent += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def page(clock: Clock, cost: float) -> tuple[Sparing, Callable[[], int]]:
    """Return a page that costs so many seconds, and how often it was made."""
    made = 0

    def make() -> bytes:
        nonlocal made
        made += 1
        clock.work(cost)
        return b"%d" % made

    return Sparing(make, clock=lambda: clock.now, spent=lambda: clock.spent), lambda: made


def test_a_page_is_made_at_once_when_it_was_not_asked_for_lately(clock: Clock) -> None:
    sparing, made = page(clock, 0.1)
    for number in range(1, 4):
        assert sparing() == b"%d" % number
        clock.now += 1.0
    assert made() == 3


def test_a_page_that_is_asked_for_again_at_once_is_the_last_one(clock: Clock) -> None:
    sparing, _ = page(clock, 0.1)
    sparing()
    clock.now += 0.89
    assert sparing() == b"1"
    clock.now += 0.02
    assert sparing() == b"2"


def test_a_flood_takes_a_tenth_of_the_time(clock: Clock) -> None:
    sparing, _ = page(clock, 0.2)
    began = clock.now
    while clock.now < began + 100:
        sparing()
        clock.now += 0.001

    assert clock.spent == pytest.approx(10, rel=0.05)
