"""Totals that slots share, for reports."""

from collections.abc import Callable
from dataclasses import dataclass, field

from activity_worker.contract import Counters
from activity_worker.contract.durations import PLACES, place_of


@dataclass(slots=True)
class TaskCounters:
    """Counts since it was made. A pool's slots share one, so that a slot that goes takes no count with it.

    `on_heartbeat_failure` is called for each task heartbeat that was not accepted; there is no event for it.
    """

    received: int = 0
    succeeded: int = 0
    failed: int = 0
    task_heartbeat_failures: int = 0
    empty_polls: int = 0
    busy_seconds: float = 0.0
    task_seconds: float = 0.0
    durations: list[int] = field(default_factory=lambda: [0] * PLACES)
    last_error: str = ""
    on_heartbeat_failure: Callable[[], object] = field(default=lambda: None)

    def task_succeeded(self, seconds: float) -> None:
        """Count a task that succeeded `seconds` after its start."""
        self.succeeded += 1
        self._ended(seconds)

    def task_failed(self, seconds: float, error: str) -> None:
        """Count a task that failed `seconds` after its start, with the error's name."""
        self.failed += 1
        self.last_error = error
        self._ended(seconds)

    def _ended(self, seconds: float) -> None:
        self.task_seconds += seconds
        self.durations[place_of(seconds)] += 1

    def heartbeat_failed(self) -> None:
        """Count a task heartbeat that was not accepted, for whatever reason."""
        self.task_heartbeat_failures += 1
        self.on_heartbeat_failure()

    def totals(self, running_seconds: float = 0.0) -> Counters:
        """Return the totals; `running_seconds` is what tasks under way have taken so far."""
        return Counters(
            received=self.received,
            succeeded=self.succeeded,
            failed=self.failed,
            task_heartbeat_failures=self.task_heartbeat_failures,
            empty_polls=self.empty_polls,
            busy_seconds=self.busy_seconds + running_seconds,
            task_seconds=self.task_seconds,
            durations=tuple(self.durations) if self.task_seconds else (),
            last_error=self.last_error,
        )
