"""PURE: a slot's failed polls in a row, the pause after each, and whether the worker reports poll trouble."""

from activity_worker.errors import ThrottledError, UnreachableError
from activity_worker.events import PollingFailure
from activity_worker.runtime.options import Polling

#: Failed polls, and throttled polls, in a row from which on a worker reports poll trouble; fewer are ordinary.
TROUBLE_FAILURES = 2
TROUBLE_THROTTLES = 5
#: Seconds for which a poll is open before it counts as accepted; refusals come at once.
ACCEPTED_SECONDS = 5.0


class PollHealth:
    """Counts the polls of one slot. `open` is whether a poll is in flight. Times are the event loop's.

    Failures are evidence only while polls follow one another. A slot that stands by, or has a task, opens none: once
    the next poll is overdue, nothing is known of the source, and the count starts again.
    """

    def __init__(self, polling: Polling) -> None:
        self.open = False
        self._polling = polling
        self._began = self._ended = 0.0
        self._failures = 0
        self._throttles = 0
        self._error: Exception | None = None

    def begin(self, now: float) -> None:
        """Record that a poll has been sent."""
        if self._is_overdue(now):
            self.reset()
        self.open = True
        self._began = now

    def end(self, now: float) -> None:
        """Record that the poll has ended, with or without an error; nothing happens without an open poll."""
        if self.open:
            self.open = False
            self._ended = now

    def reset(self) -> None:
        """Start the counts again: a poll has succeeded, or the slot starts."""
        self._failures = self._throttles = 0

    def fail(self, error: Exception) -> PollingFailure:
        """Record that the poll has failed. Return the payload of `polling:error`."""
        if self._uncounted(error):
            self._throttles += 1
        else:
            self._failures += 1
        self._error = error
        return PollingFailure(self._polling.retries(self._failures), self._failures, error)

    def pause_seconds(self, spread: float) -> float:
        """Return how long to wait after the last failure; `spread` is a random number from 0 to 1."""
        uncounted = self._error is not None and self._uncounted(self._error)
        return self._polling.sleep_after(self._throttles if uncounted else self._failures, spread)

    def trouble(self, now: float) -> Exception | None:
        """Return the error of the last poll if enough polls in a row have failed, else None.

        A poll that is open for `ACCEPTED_SECONDS` counts as accepted, because refusals come at once. If no further poll
        was opened when it was due, the error is too old to tell whether the next one would fail.
        """
        if self._failures < TROUBLE_FAILURES and self._throttles < TROUBLE_THROTTLES:
            return None
        if self._is_overdue(now):
            return None
        answered = not isinstance(self._error, UnreachableError)
        accepted = answered and self.open and now - self._began >= ACCEPTED_SECONDS
        return None if accepted else self._error

    def _is_overdue(self, now: float) -> bool:
        """Return whether the slot has polled no more although the longest pause between two polls is over."""
        return not self.open and now - self._ended > self._polling.max_sleep_seconds + ACCEPTED_SECONDS

    def _uncounted(self, error: Exception) -> bool:
        """Return whether an error is throttling, which does not count as a failure if polls are retried for ever."""
        return self._polling.max_attempts is None and isinstance(error, ThrottledError)
