"""The operator's two clocks: monotonic seconds, and Unix seconds that a step of the machine's clock does not move.

Windows, silences and patience are differences of two such times. If they were read from the wall, setting a machine's
clock an hour ahead would make every worker look silent, every window run out and every waiting task overdue at once.
"""

import time
from collections.abc import Callable

#: By how much of the time that passes a difference to the machine's clock is made up: a window that is measured
#: meanwhile is off by a twentieth, and an hour's step is made up within a day.
CATCH_UP = 0.05


def clock() -> float:
    """Return seconds that also pass while the machine sleeps, so that a Lease is not kept past its end."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SlewedClock:
    """Unix seconds that pass as `clock` does and follow `wall` slowly; never backwards.

    `wall` is the machine's time of day (Unix seconds), read once to begin with; `clock` is monotonic seconds.
    """

    def __init__(self, wall: Callable[[], float], clock: Callable[[], float]) -> None:
        self._wall = wall
        self._clock = clock
        self._at = clock()
        self._now = wall()

    def __call__(self) -> float:
        """Return the time now."""
        at = self._clock()
        passed, self._at = at - self._at, at
        self._now += passed
        most = CATCH_UP * passed
        self._now += min(max(self._wall() - self._now, -most), most)
        return self._now
