"""PURE: a budget of calls, as AWS counts them: a bucket that each call takes one from, and that refills at a rate."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class CallBudget:
    """The calls that may be made now at one place.

    `burst` is the size of the bucket, full at the beginning; `rate` is its refill in calls a second. Times are those of
    one clock, in seconds.
    """

    burst: float
    rate: float
    calls: float = field(init=False)
    _at: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.calls = self.burst

    @property
    def full(self) -> bool:
        """Whether the bucket is full."""
        return self.calls >= self.burst

    def refill(self, now: float) -> None:
        """Add the calls that have become free since the last refill."""
        if self._at is not None:
            self.calls = min(self.burst, self.calls + (now - self._at) * self.rate)
        self._at = now

    def wait_seconds(self) -> float:
        """Return the seconds until a call is free."""
        return max(0.0, (1.0 - self.calls) / self.rate)
