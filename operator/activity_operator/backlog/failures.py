"""PURE: failures in a row of one pool or one server: the wait after each, and whether a condition shows it."""

import sys
from dataclasses import dataclass, replace
from typing import Self

from activity_operator import backoff
from activity_operator.backlog.protocol import SourceProblemError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """First and longest waits in seconds, and the failure in a row (from 1) from which a condition shows it.

    Throttled calls have values of their own, because a few of them are normal operation. `least_seconds` is added to
    each wait.
    """

    first_seconds: float
    cap_seconds: float
    unreachable_shown: int = 1
    throttled_first_seconds: float = 1.0
    throttled_cap_seconds: float = 30.0
    throttled_shown: int = 5
    least_seconds: float = 0.0

    def of_place(self, throttled_first_seconds: float, throttled_cap_seconds: float) -> Self:
        """Return the policy of a round whose pools have this one: only the place waits after throttled calls.

        The round shows no throttling: its reader knows which pools it concerns.
        """
        return replace(
            self,
            throttled_first_seconds=throttled_first_seconds,
            throttled_cap_seconds=throttled_cap_seconds,
            throttled_shown=sys.maxsize,
        )


@dataclass(slots=True)
class Failures:
    """Counts failures and throttled calls in a row; a failure ends a row of throttled calls."""

    failed: int = 0
    throttled: int = 0

    def __bool__(self) -> bool:
        """Return whether the last try failed."""
        return bool(self.failed or self.throttled)

    def clear(self) -> None:
        """Count from zero again, because a try succeeded."""
        self.failed = self.throttled = 0

    def add(self, problem: SourceProblemError | None = None) -> None:
        """Count a failure; without a problem it is a failure whose pools have problems of their own."""
        if problem is not None and problem.throttled:
            self.throttled += 1
        else:
            self.failed, self.throttled = self.failed + 1, 0

    def shows(self, problem: SourceProblemError, policy: RetryPolicy) -> bool:
        """Return whether the problem, which is counted already, belongs into the pools' conditions."""
        if problem.throttled:
            return self.throttled >= policy.throttled_shown
        return problem.reason != "BackendUnreachable" or self.failed >= policy.unreachable_shown

    def pause_seconds(self, policy: RetryPolicy, jitter: backoff.Jitter) -> float:
        """Return the wait after the last failure."""
        if self.throttled:
            first, cap = policy.throttled_first_seconds, policy.throttled_cap_seconds
            return policy.least_seconds + backoff.full_jitter(self.throttled, first, cap, jitter)
        return policy.least_seconds + backoff.capped(self.failed, policy.first_seconds, policy.cap_seconds, jitter)
