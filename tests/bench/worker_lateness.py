"""PURE: how late task heartbeats were, from the times at which a service saw them."""

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
        """How many were due."""
        return len(self.seconds)

    def quantile(self, share: float) -> float:
        """Return the lateness that a `share` of them did not exceed; the greatest for 1."""
        return self.seconds[max(math.ceil(share * len(self.seconds)) - 1, 0)] if self.seconds else 0.0

    def later_than(self, seconds: float) -> int:
        """Return how many were later than that."""
        return sum(late > seconds for late in self.seconds)


def of_tasks(histories: Sequence[Sequence[float]], interval_seconds: float, ended_at: float) -> Lateness:
    """Return the lateness of every heartbeat that was due.

    A history is when a task was leased and then when each of its heartbeats was seen, to `ended_at`. Each was due
    `interval_seconds` after the one before. One that had not come when the window ended counts with what it was late
    then: who sends none must not look punctual.
    """
    late: list[float] = []
    for seen in histories:
        late += [max(after - before - interval_seconds, 0.0) for before, after in itertools.pairwise(seen)]
        overdue = ended_at - seen[-1] - interval_seconds
        if overdue > 0:
            late.append(overdue)
    return Lateness(tuple(sorted(late)))
