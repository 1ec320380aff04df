"""PURE: the growth rate of a series, as the median of the slopes between all pairs of samples (Theil-Sen).

A burst, a spike or a step down changes it little, unlike a least-squares line.
"""

from collections.abc import Sequence
from itertools import combinations
from statistics import median

Point = tuple[float, float]


def slope(*series: Sequence[Point]) -> float:
    """Return the growth per second; 0.0 for fewer than two moments.

    Of several series, only pairs within a series count, because the difference between two series is no growth.
    """
    pairs = [pair for points in series for pair in combinations(points, 2)]
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in pairs if x2 != x1]
    return median(slopes) if slopes else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed; 0.0 without values."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0
