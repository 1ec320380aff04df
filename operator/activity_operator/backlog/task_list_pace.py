"""PURE: how a quota of counts a second is divided among task lists.

A list whose next count may change a pool's size gets more counts than another one, and no list gets more than it needs.
What one list leaves is the others'.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from activity_operator.core.decision import CountPace

#: Shortest seconds between two counts of one list, by default.
FASTEST_SECONDS = 0.35
#: Seconds between two counts of a list that needs none: workers with free slots take new tasks by themselves.
SLOW_SECONDS = 15.0
#: Seconds after a changed count for which a list counts as active: tasks often come soon after others.
ACTIVE_SECONDS = 300.0
#: Shares of a list at its pace, and how much more an active list gets.
_WEIGHTS = {CountPace.FAST: 2.0, CountPace.STEADY: 1.0, CountPace.SLOW: 0.5}
_ACTIVE_WEIGHT = 4.0


@dataclass(frozen=True, slots=True)
class ListNeed:
    """What a list needs: its pace, and whether its count has changed lately."""

    pace: CountPace = CountPace.STEADY
    active: bool = False

    @property
    def weight(self) -> float:
        """The list's share of the quota."""
        return _WEIGHTS[self.pace] * (_ACTIVE_WEIGHT if self.active else 1.0)


def count_intervals(needs: Iterable[ListNeed], rate: float, fastest_seconds: float) -> Mapping[ListNeed, float]:
    """Return the seconds between two counts of a list with each need, at `rate` counts a second for all lists.

    `fastest_seconds` is the shortest interval of a list. Lists that get less than they need share by their weights.
    """
    numbers = Counter(needs)
    shortest = {need: SLOW_SECONDS if need.pace is CountPace.SLOW else fastest_seconds for need in numbers}
    intervals: dict[ListNeed, float] = {}
    left, weight = rate, sum(need.weight * number for need, number in numbers.items())
    # The lists that reach their shortest interval with the smallest share come first, and leave the rest to the others.
    for need in sorted(numbers, key=lambda one: 1.0 / (shortest[one] * one.weight)):
        each = left * need.weight / weight
        intervals[need] = max(shortest[need], 1.0 / each)
        left -= numbers[need] / intervals[need]
        weight -= need.weight * numbers[need]
    return intervals
