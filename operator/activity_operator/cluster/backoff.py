"""Waits after failures of a reconciliation: exponential, capped, with jitter."""

FIRST_SECONDS = 0.5
LAST_SECONDS = 60.0
#: First wait after a conflict: the watch is about to deliver the new version of the object.
CONFLICT_SECONDS = 0.1


def retry_delay(failures: int, jitter: float, *, conflict: bool = False) -> float:
    """Return the seconds to wait after this many consecutive failures (from 1); `jitter` (0 to 1) halves it at most."""
    first = CONFLICT_SECONDS if conflict else FIRST_SECONDS
    full = min(first * 2.0 ** min(failures - 1, 16), LAST_SECONDS)
    return full * (1.0 - jitter / 2)
