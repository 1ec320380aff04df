"""The options of a slot: its tasks (`TaskOptions`) and its polls (`Polling`)."""

from dataclasses import dataclass
from typing import Final, Literal, Self, get_args

OnError = Literal["fail", "leave"]


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How a slot runs its tasks.

    `heartbeat_seconds`: interval of task heartbeats (10, a third of a HeartbeatSeconds of 30).
    `deadline_seconds`: after it the handler is cancelled and the task failed, whatever it does (None: never).
    `on_error`: "fail" (default) fails the task of a handler that raised or did not answer; "leave" lets it time out.
    `cancel_grace_seconds`: a handler that ignores its cancellation for longer keeps its slot, not its task (5).
    `conclude_for_seconds`: how long an answer that the service cannot take is tried again (3600).
    """

    heartbeat_seconds: float = 10.0
    deadline_seconds: float | None = None
    on_error: OnError = "fail"
    cancel_grace_seconds: float = 5.0
    conclude_for_seconds: float = 3600.0

    def __post_init__(self) -> None:
        if not self.heartbeat_seconds > 0:
            raise ValueError(f"heartbeat_seconds: {self.heartbeat_seconds}: must be above 0")
        if self.deadline_seconds is not None and not self.deadline_seconds > 0:
            raise ValueError(f"deadline_seconds: {self.deadline_seconds}: must be above 0, or None for no deadline")
        if self.on_error not in get_args(OnError):
            raise ValueError(f"on_error: {self.on_error!r}: must be one of {', '.join(get_args(OnError))}")
        if self.cancel_grace_seconds < 0:
            raise ValueError(f"cancel_grace_seconds: {self.cancel_grace_seconds}: must be 0 or more")
        if self.conclude_for_seconds < 0:
            raise ValueError(f"conclude_for_seconds: {self.conclude_for_seconds}: must be 0 or more")


#: A source that answers an empty poll at once instead of holding it is asked once in this time at most.
EMPTY_POLL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Polling:
    """The retry of polls. After the nth failure in a row: `interval + interval * rate * (n - 1)` seconds.

    `max_attempts` failures in a row end the slot (None: never; then throttling is not counted either). Any poll that
    succeeds, an empty one too, starts the count again. The defaults give 1, 2.2, 3.4, 4.6 s, then the end.

    `jitter` is the share of each pause that is random (0: none), so that slots that are throttled together do not poll
    again together.
    """

    interval_seconds: float = 1.0
    max_attempts: int | None = 5
    backoff_rate: float = 1.2
    max_sleep_seconds: float = 30.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if not self.interval_seconds > 0:
            raise ValueError(f"polling.interval_seconds: {self.interval_seconds}: must be above 0")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError(f"polling.max_attempts: {self.max_attempts}: must be at least 1, or None for ever")
        if self.backoff_rate < 0:
            raise ValueError(f"polling.backoff_rate: {self.backoff_rate}: must be 0 or more")
        if self.max_sleep_seconds < self.interval_seconds:
            raise ValueError(f"polling.max_sleep_seconds: {self.max_sleep_seconds}: must be at least interval_seconds")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"polling.jitter: {self.jitter}: must be between 0 and 1")

    @classmethod
    def forever(cls, max_sleep_seconds: float = 30.0) -> Self:
        """Return the image's way: never give up, sleep at most `max_sleep_seconds`, half of each pause at random."""
        return cls(max_attempts=None, max_sleep_seconds=max_sleep_seconds, jitter=0.5)

    def retries(self, failures: int) -> bool:
        """Tell whether another poll follows the nth failure in a row."""
        return self.max_attempts is None or failures < self.max_attempts

    def sleep_after(self, failures: int, spread: float = 0.0) -> float:
        """Return the seconds to sleep after the nth failure in a row.

        `spread`, a random number from 0 to 1, tells how much of the jitter is taken off.
        """
        linear = self.interval_seconds + self.interval_seconds * self.backoff_rate * (failures - 1)
        return min(linear, self.max_sleep_seconds) * (1 - self.jitter * spread)
