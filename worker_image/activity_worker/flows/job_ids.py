"""Ids of jobs: UUIDs of version 7, which sort by the order in which a process made them."""

import secrets
import threading
import time
import uuid

_CHANCE_BITS = 74
_LOW_BITS = 62
_LOW = (1 << _LOW_BITS) - 1


class _Maker:
    """Makes ids, each greater than the one before: within a millisecond, and when the clock is set back, by one."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def make(self, milliseconds: int) -> str:
        # The highest random bit is left out, so that counting up does not soon reach into the time.
        chosen = milliseconds << _CHANCE_BITS | secrets.randbits(_CHANCE_BITS - 1)
        with self._lock:
            self._last = number = max(chosen, self._last + 1)
        head, chance = number >> _CHANCE_BITS, number & (1 << _CHANCE_BITS) - 1
        return str(uuid.UUID(int=head << 80 | 0x7 << 76 | chance >> _LOW_BITS << 64 | 0b10 << 62 | chance & _LOW))


_maker = _Maker()


def uuid7(now_seconds: float | None = None) -> str:
    """Return a new id; its first 48 bits are `now_seconds` since 1970 (the clock's), in milliseconds."""
    return _maker.make(int((time.time() if now_seconds is None else now_seconds) * 1000))
