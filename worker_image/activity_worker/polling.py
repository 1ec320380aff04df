"""PURE: how often a failed poll is tried again, and after how long."""

from dataclasses import dataclass
from typing import Final, Self

#: A source that answers an empty poll at once instead of holding it is asked once in this time at most.
EMPTY_POLL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Polling:
    """The retry of polls. After the nth failure in a row: `interval + interval * rate * (n - 1)` seconds.

    `max_attempts` failures in a row end the worker (None: never; then throttling is not counted either). Any poll that
    succeeds, an empty one too, starts the count again. The defaults are system 000's: 1, 2.2, 3.4, 4.6 s, then the end.
    """

    interval_seconds: float = 1.0
    max_attempts: int | None = 5
    backoff_rate: float = 1.2
    max_sleep_seconds: float = 30.0

    def __post_init__(self) -> None:
        if not self.interval_seconds > 0:
            raise ValueError(f"polling.interval_seconds: {self.interval_seconds}: must be above 0")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError(f"polling.max_attempts: {self.max_attempts}: must be at least 1, or None for ever")
        if self.backoff_rate < 0:
            raise ValueError(f"polling.backoff_rate: {self.backoff_rate}: must be 0 or more")
        if self.max_sleep_seconds < self.interval_seconds:
            raise ValueError(f"polling.max_sleep_seconds: {self.max_sleep_seconds}: must be at least interval_seconds")

    @classmethod
    def forever(cls, max_sleep_seconds: float = 30.0) -> Self:
        """Return the image's way: never give up, sleep at most `max_sleep_seconds`."""
        return cls(max_attempts=None, max_sleep_seconds=max_sleep_seconds)

    def retries(self, failures: int) -> bool:
        """Tell whether another poll follows the nth failure in a row."""
        return self.max_attempts is None or failures < self.max_attempts

    def sleep_after(self, failures: int) -> float:
        """Return the seconds to sleep after the nth failure in a row."""
        linear = self.interval_seconds + self.interval_seconds * self.backoff_rate * (failures - 1)
        return min(linear, self.max_sleep_seconds)
