"""The last resort: a leader whose main loop no longer turns cannot even notice that its Lease is gone."""

import logging
import os
import threading
from collections.abc import Callable

#: Exit code of a process that its watchdog ended (EX_SOFTWARE).
EXIT_STUCK = 70

log = logging.getLogger(__name__)


class Watchdog:
    """A thread that ends the process when `tick` was not called for `limit_seconds` while it leads.

    It counts its own wake-ups instead of reading a clock: a process that was stopped as a whole and goes on finds the
    count where it was, and its loop has the full limit to turn again.
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
        """Start watching over the loop."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching over it."""
        self._stopped.set()

    def tick(self, *, leading: bool) -> None:
        """Say that the loop turns, and whether it leads."""
        self._leading = leading
        self._missed = 0

    def is_stuck(self) -> bool:
        """Count one wake-up of the watchdog; whether a leader's loop has missed its limit of them."""
        self._missed += 1
        return self._leading and self._missed >= self._limit

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            if self.is_stuck():
                log.critical("the main loop has not turned for %g s: ending", self._limit * self._interval)
                self._end(EXIT_STUCK)
                return
