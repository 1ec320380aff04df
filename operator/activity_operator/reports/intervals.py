"""PURE: how often workers report, so that all of them together stay under a fixed rate."""

from dataclasses import dataclass

#: Reports a second that one operator takes from its whole fleet; 0.17 ms of CPU each, TLS included, so 3 % of a core.
DEFAULT_RATE = 200.0
#: Seconds between two reports of a worker in a small fleet.
FASTEST_SECONDS = 1.0
#: Share of the rate for workers that an order waits for, while there are any; the rest of the fleet has the remainder.
HURRIED_SHARE = 0.5
#: By how much of the interval a single order may be longer, so that a fleet that started together spreads out. An
#: order is never shorter than the plan: the rate holds whatever the dice say.
JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between two reports: of a worker nobody waits for, and of one that an offer or a directive waits for."""

    normal: float
    hurried: float

    def order(self, *, hurried: bool, jitter: float) -> float:
        """Return the seconds to order in one reply; `jitter` is a number from 0 to 1."""
        return (self.hurried if hurried else self.normal) * (1.0 + JITTER * jitter)


def plan(workers: int, hurried: int, rate: float = DEFAULT_RATE) -> Intervals:
    """Return the intervals for a fleet of `workers`, of which an order waits for `hurried`."""
    if not hurried:
        whole = max(FASTEST_SECONDS, workers / rate)
        return Intervals(whole, FASTEST_SECONDS)
    calm = max(workers - hurried, 0)
    return Intervals(
        normal=max(FASTEST_SECONDS, calm / (rate * (1.0 - HURRIED_SHARE)), workers / rate),
        hurried=max(FASTEST_SECONDS, hurried / (rate * HURRIED_SHARE)),
    )
