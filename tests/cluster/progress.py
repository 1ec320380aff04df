"""One line for each step with its seconds; a long step prints a line every 20 s."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

HEARTBEAT_SECONDS = 20.0
_BEGAN = time.monotonic()


def say(text: str) -> None:
    """Print one line that starts with the seconds since this process began."""
    print(f"[{time.monotonic() - _BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print the start of a step when it is slow, and its end or failure always, with its seconds."""
    began = time.monotonic()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_SECONDS):
            say(f"  ... {title}: {time.monotonic() - began:.0f} s so far")

    heart = threading.Thread(target=beat, daemon=True)
    heart.start()
    try:
        yield
    except BaseException:
        say(f"{title}: FAILED after {time.monotonic() - began:.1f} s")
        raise
    finally:
        done.set()
        heart.join()
    say(f"{title}: {time.monotonic() - began:.1f} s")
