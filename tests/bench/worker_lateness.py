"""PURE: how late task heartbeats were, from the times at which a service got them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lateness:
    """All heartbeats that were due in a window: how late each was, in seconds, in rising order."""

    seconds: tuple[float, ...]

    @property
    def count(self) -> int:
        """The number of due heartbeats."""
        return len(self.seconds)

    def quantile(self, share: float) -> float:
        """Return the lateness that a `share` of the heartbeats did not exceed; the greatest for 1."""
        return self.seconds[max(math.ceil(share * len(self.seconds)) - 1, 0)] if self.seconds else 0.0

    def later_than(self, seconds: float) -> int:
        """Return how many heartbeats were later than `seconds`."""
        return sum(late > seconds for late in self.seconds)


def of_tasks(histories: Sequence[Sequence[float]], interval_seconds: float, ended_at: float) -> Lateness:
    """Return the lateness of every due heartbeat.

    A history is the time at which a task was leased, then the times of its heartbeats, up to `ended_at`. Each heartbeat
    is due `interval_seconds` after the one before. A heartbeat that is missing at the end counts with its lateness at
    that moment; otherwise a task without heartbeats would look punctual.
    """
    late: list[float] = []
    for seen in histories:
        late += [max(after - before - interval_seconds, 0.0) for before, after in itertools.pairwise(seen)]
        overdue = ended_at - seen[-1] - interval_seconds
        if overdue > 0:
            late.append(overdue)
    return Lateness(tuple(sorted(late)))
