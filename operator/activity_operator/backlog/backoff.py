"""How long to wait before the next try: doubling, capped, spread by a die."""

import random
from collections.abc import Callable

Jitter = Callable[[], float]


def capped(failures: int, first_seconds: float, cap_seconds: float, jitter: Jitter = random.random) -> float:
    """Return the wait after so many failures in a row (from 1): from half the step to the whole of it."""
    step = min(cap_seconds, first_seconds * 2.0 ** min(failures - 1, 30))
    return step * (0.5 + 0.5 * jitter())


def full_jitter(failures: int, first_seconds: float, cap_seconds: float, jitter: Jitter = random.random) -> float:
    """Return the wait after a throttled call: anything up to the step, so that callers spread as far as they can."""
    return min(cap_seconds, first_seconds * 2.0 ** min(failures, 30)) * jitter()
