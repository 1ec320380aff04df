"""How long to wait before the next try of what has failed."""

from typing import Final

#: 2 to this power is beyond any maximum; a count of failures has no bound.
_MAX_DOUBLINGS: Final = 60


def pause_after(failures: int, *, first_seconds: float, max_seconds: float) -> float:
    """Return the pause in seconds after the nth failure in a row (n from 1).

    It is `first_seconds` after the first failure, doubles with each further one, and is at most `max_seconds`.
    """
    return min(first_seconds * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), max_seconds)
