"""How long to wait after a failure: longer each time, never much longer than the cap, never all at the same moment."""

FIRST_SECONDS = 0.5
LAST_SECONDS = 60.0
#: Another process wrote meanwhile: the fresh object is on its way, so look again almost at once.
CONFLICT_SECONDS = 0.1


def retry_delay(failures: int, jitter: float, *, conflict: bool = False) -> float:
    """Return seconds to wait after so many failures in a row (from 1); `jitter` is in [0, 1) and takes up to half
    off."""
    first = CONFLICT_SECONDS if conflict else FIRST_SECONDS
    full = min(first * 2.0 ** min(failures - 1, 16), LAST_SECONDS)
    return full * (1.0 - jitter / 2)
