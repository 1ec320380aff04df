"""PURE: whether the API server answers TokenReviews. One failed call among many is no reason to report a problem."""

#: A problem begins after this many failures in a row that span at least this many seconds: a restarting API server or a
#: short overload refuses some calls.
FAILURES = 5
FAILING_SECONDS = 10.0
#: Seconds without a failure after which a problem has ended, counted from the last failure, if a review was answered.
ANSWERING_SECONDS = 10.0
#: Seconds without any review after which a problem has ended: twice the longest pause between two tries of one worker
#: (10 s, and 5 s for the report).
SILENT_SECONDS = 30.0


class ReviewHealth:
    """The answers and failures of TokenReviews; `now` is in Unix seconds."""

    def __init__(self) -> None:
        self._failures = 0
        self._failing_since = 0.0
        self._failed_at = float("-inf")
        self._answered_at = float("-inf")
        self._problem = ""

    def failed(self, now: float, why: str) -> bool:
        """Record a review without an answer; return whether a problem begins with it."""
        known = bool(self.problem(now))
        if not self._failures:
            self._failing_since = now
        self._failures += 1
        self._failed_at = now
        if known or (self._failures >= FAILURES and now - self._failing_since >= FAILING_SECONDS):
            self._problem = f"the API server does not answer TokenReviews: {why}"
        return bool(self._problem) and not known

    def answered(self, now: float) -> None:
        """Record an answered review, accepted or refused."""
        self._failures = 0
        self._answered_at = now

    def problem(self, now: float) -> str:
        """Return why reports cannot be authenticated now, "" while they can be."""
        answers = self._answered_at >= self._failed_at
        if now - self._failed_at >= (ANSWERING_SECONDS if answers else SILENT_SECONDS):
            self._problem = ""
        return self._problem
