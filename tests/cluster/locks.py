"""Locks of the cache: two commands must not build or boot the same thing at once."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.progress import say


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """Hold the lock of this file; print a line and wait while another command holds it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another command that holds {file}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
