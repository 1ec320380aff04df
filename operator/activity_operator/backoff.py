"""Waits before the next try, for every back-off of the operator: each is twice the last one, up to a cap, with jitter.

Jitter spreads the tries of many pools, connections and replicas that failed together, so they do not return together.
"""

import random
from collections.abc import Callable, Iterator
from itertools import count

Jitter = Callable[[], float]

#: 2 to this power is beyond any cap; a number of failures has no bound.
_MAX_DOUBLINGS = 30


def capped(failures: int, first_seconds: float, cap_seconds: float, jitter: Jitter = random.random) -> float:
    """Return the seconds to wait after this many consecutive failures (from 1): half a step to a whole one.

    The first step is `first_seconds`. `jitter` returns a number from 0 to 1.
    """
    step = min(cap_seconds, first_seconds * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
    return step * (0.5 + 0.5 * jitter())


def full_jitter(failures: int, first_seconds: float, cap_seconds: float, jitter: Jitter = random.random) -> float:
    """Return the seconds to wait after a throttled call: 0 to a whole step, so that the callers spread out."""
    return min(cap_seconds, first_seconds * 2.0 ** min(failures, _MAX_DOUBLINGS)) * jitter()


def pauses(first_seconds: float, cap_seconds: float, jitter: Jitter = random.random) -> Iterator[float]:
    """Return the waits after the first failure, the second one and so on, without an end."""
    return (capped(failures, first_seconds, cap_seconds, jitter) for failures in count(1))
