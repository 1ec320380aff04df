"""Waits before the next try: each is twice the last one, up to a cap, with jitter."""

import random
from collections.abc import Callable

Jitter = Callable[[], float]


def capped(failures: int, first_seconds: float, cap_seconds: float, jitter: Jitter = random.random) -> float:
    """Return the seconds to wait after this many consecutive failures (from 1): half a step to a whole one."""
    step = min(cap_seconds, first_seconds * 2.0 ** min(failures - 1, 30))
    return step * (0.5 + 0.5 * jitter())


def full_jitter(failures: int, first_seconds: float, cap_seconds: float, jitter: Jitter = random.random) -> float:
    """Return the seconds to wait after a throttled call: 0 to a whole step, so that the callers spread out."""
    return min(cap_seconds, first_seconds * 2.0 ** min(failures, 30)) * jitter()
