"""PURE: how a handler's failed tasks are tried again, where the source leaves that to the worker: a taskbroker."""

from dataclasses import dataclass

from activity_worker.errors import RetryTask
from activity_worker.task import RetryTerms


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: `attempts` tries in all, for the exceptions in `on`, except those in `ignore`.

    `delay` is how many seconds pass before the next try (None: what the producer said). `on_deadline`: a try that
    exceeds its processing deadline counts as one of the exceptions. `RetryTask` is always one.
    """

    attempts: int
    on: tuple[type[BaseException], ...] = (Exception,)
    ignore: tuple[type[BaseException], ...] = ()
    delay: int | None = None
    on_deadline: bool = True

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"retry: attempts={self.attempts}: must be at least 1")
        if self.delay is not None and self.delay < 0:
            raise ValueError(f"retry: delay={self.delay}: must be 0 or more seconds")

    @property
    def terms(self) -> RetryTerms:
        """What the supervisor needs of the policy."""
        return RetryTerms(self.attempts, self.delay, self.on_deadline)

    def takes(self, error: BaseException) -> bool:
        """Tell whether a task that failed with `error` is tried again while attempts are left."""
        if isinstance(error, RetryTask):
            return True
        return isinstance(error, self.on) and not isinstance(error, self.ignore)
