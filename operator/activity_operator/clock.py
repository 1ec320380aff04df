"""The operator's two clocks: monotonic seconds, and slewed Unix seconds that follow the machine's clock without steps.

Windows and time-outs are differences of two such times. With the machine's clock, a step of an hour would at once make
every worker look silent, end every window, and make every waiting task overdue.
"""

import time
from collections.abc import Callable

#: The largest slew, as a share of the time that passes: a window is wrong by a twentieth at most, and a step of an hour
#: is corrected within a day.
CATCH_UP = 0.05


def clock() -> float:
    """Return monotonic seconds that also pass while the machine sleeps, so that a Lease is not used past its end."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SlewedClock:
    """Unix seconds that advance with `clock` and slowly approach `wall`; they never go backwards.

    `wall` is the machine's time of day (Unix seconds); `clock` is monotonic seconds.
    """

    def __init__(self, wall: Callable[[], float], clock: Callable[[], float]) -> None:
        self._wall = wall
        self._clock = clock
        self._at = clock()
        self._now = wall()

    def __call__(self) -> float:
        """Return the current slewed Unix time in seconds."""
        at = self._clock()
        passed, self._at = at - self._at, at
        self._now += passed
        most = CATCH_UP * passed
        self._now += min(max(self._wall() - self._now, -most), most)
        return self._now
