"""Ends a leader whose main loop hangs: such a process cannot notice that it has lost its Lease."""

import logging
import os
import threading
from collections.abc import Callable

#: Exit code of a process that its watchdog ended (EX_SOFTWARE).
EXIT_STUCK = 70

log = logging.getLogger(__name__)


class Watchdog:
    """A thread that ends the process if `tick` is not called for `limit_seconds` while the process leads.

    It counts its own wake-ups instead of reading a clock. After a suspended process resumes, the count has not changed,
    so the main loop has time to tick again.
    """

    def __init__(
        self,
        limit_seconds: float,
        *,
        interval_seconds: float = 0.5,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self._limit = max(int(limit_seconds / interval_seconds), 1)
        self._interval = interval_seconds
        self._end = end
        self._leading = False
        self._missed = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopped.set()

    def tick(self, *, leading: bool) -> None:
        """Record that the main loop runs, and whether this process leads."""
        self._leading = leading
        self._missed = 0

    def is_stuck(self) -> bool:
        """Count one wake-up; return whether a leader's main loop has missed the limit of ticks."""
        self._missed += 1
        return self._leading and self._missed >= self._limit

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            if self.is_stuck():
                log.critical("the main loop has not run for %g s: ending this process", self._limit * self._interval)
                self._end(EXIT_STUCK)
                return
