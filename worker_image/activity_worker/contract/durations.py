"""Durations of tasks in a report: how many ended within each bound, so that the operator can sum them."""

from bisect import bisect_left
from collections.abc import Sequence

#: Upper bounds in seconds, the same on both sides. A longer task is in one more place, after the last bound.
DURATION_BOUNDS = (
    *(0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
PLACES = len(DURATION_BOUNDS) + 1

Durations = tuple[int, ...]


def place_of(seconds: float) -> int:
    """Return the place in which a task of this duration is counted."""
    return bisect_left(DURATION_BOUNDS, seconds)


def added(one: Sequence[int], other: Sequence[int]) -> Durations:
    """Return the sum, place by place; a missing place is 0."""
    places = range(max(len(one), len(other)))
    return tuple(_at(one, place) + _at(other, place) for place in places)


def increase(after: Sequence[int], before: Sequence[int]) -> Durations:
    """Return what came between two counts, place by place and never below 0."""
    return tuple(max(count - _at(before, place), 0) for place, count in enumerate(after))


def quantile(durations: Sequence[int], share: float) -> float | None:
    """Return the duration within which this share of the tasks ended, in seconds; None without tasks.

    Within its bounds a duration is interpolated. A task above the last bound counts as that bound.
    """
    total = sum(durations)
    if not total:
        return None
    wanted, seen, low = share * total, 0, 0.0
    for place, count in enumerate(durations[: len(DURATION_BOUNDS)]):
        high = DURATION_BOUNDS[place]
        if count and seen + count >= wanted:
            return low + (high - low) * (wanted - seen) / count
        seen, low = seen + count, high
    return DURATION_BOUNDS[-1]


def _at(counts: Sequence[int], place: int) -> int:
    return counts[place] if place < len(counts) else 0
