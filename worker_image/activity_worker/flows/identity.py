"""Ids of jobs: UUIDs of version 7, which sort by the time at which they were made."""

import secrets
import time
import uuid

_RANDOM_BITS = 74
_LOW_BITS = 62


def uuid7(now_seconds: float | None = None) -> str:
    """Return a new id; `now_seconds` since 1970 (the clock's) are its first 48 bits, in milliseconds."""
    milliseconds = int((time.time() if now_seconds is None else now_seconds) * 1000)
    chance = secrets.randbits(_RANDOM_BITS)
    high = chance >> _LOW_BITS
    low = chance & ((1 << _LOW_BITS) - 1)
    return str(uuid.UUID(int=(milliseconds & (1 << 48) - 1) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))
