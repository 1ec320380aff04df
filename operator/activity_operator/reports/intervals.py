"""PURE: the seconds between two reports of a worker, so that all reports together stay under one rate."""

from dataclasses import dataclass

#: Reports per second that one operator takes from its whole fleet: 0.17 ms of CPU each with TLS, so 3 % of a core.
DEFAULT_RATE = 200.0
#: Seconds between two reports of a worker in a small fleet.
FASTEST_SECONDS = 1.0
#: Most of the rate that is kept for hurried workers, that is those with an offer or a directive waiting. A few take
#: only what they need: a single one must not halve the reports of all the others.
HURRIED_SHARE = 0.5
#: Share of the interval by which a single reply may lengthen it, so that workers that started together spread out. The
#: interval is never shorter than planned, so the rate always holds.
JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between two reports: `hurried` for a worker with an offer or directive waiting, `normal` for others."""

    normal: float
    hurried: float

    def order(self, *, hurried: bool, jitter: float) -> float:
        """Return the interval for one reply, in seconds; `jitter` is a number from 0 to 1."""
        return (self.hurried if hurried else self.normal) * (1.0 + JITTER * jitter)


def plan_intervals(workers: int, hurried: int, rate: float = DEFAULT_RATE) -> Intervals:
    """Return the intervals for a fleet of `workers`, of which `hurried` have an offer or a directive waiting."""
    calm = max(workers - hurried, 0)
    left = rate - min(hurried / FASTEST_SECONDS, rate * HURRIED_SHARE)
    normal = max(FASTEST_SECONDS, calm / left, workers / rate)
    if not hurried:
        return Intervals(normal, FASTEST_SECONDS)
    # The hurried workers get what the others leave: all of the rate if every worker is hurried.
    return Intervals(normal, max(FASTEST_SECONDS, hurried / (rate - calm / normal)))
