"""PURE: what the workers of a pool did in the last minutes, in periods of a minute."""

from collections.abc import Iterable
from dataclasses import dataclass

from activity_operator.core.task_counts import NO_COUNTS, TaskCounts

#: Seconds of a period, and the age after which a period is dropped.
PERIOD_SECONDS = 60.0
WINDOW_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class TaskPeriod:
    """What the workers of one revision did in the period that begins at `start` (Unix seconds)."""

    start: float
    revision: str
    counts: TaskCounts


#: The periods in which workers did anything, oldest first, up to WINDOW_SECONDS old.
TaskWindow = tuple[TaskPeriod, ...]


def period_start(now: float) -> float:
    """Return the start of the period that `now` lies in, Unix seconds."""
    return now // PERIOD_SECONDS * PERIOD_SECONDS


def counts_of(window: TaskWindow, begin: float, end: float, revision: str | None = None) -> TaskCounts:
    """Return the sum of the periods that start in [begin, end), of one revision or of all."""
    return total(
        period.counts
        for period in window
        if begin <= period.start < end and (revision is None or period.revision == revision)
    )


def total(counts: Iterable[TaskCounts]) -> TaskCounts:
    """Return the sum of the counts."""
    return sum(counts, NO_COUNTS)
