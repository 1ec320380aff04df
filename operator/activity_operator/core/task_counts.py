"""PURE: what the workers of a pool did, from the counters in their reports."""

from dataclasses import dataclass

from activity_worker.contract import Counters
from activity_worker.contract.durations import Durations, added, increase


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """What workers did in some time; sums of it never decrease.

    `received` tasks end as `succeeded` or `failed`, unless the service or the worker gave up on them.
    `heartbeat_failures` are task heartbeats that were not accepted, `empty_polls` polls without a task. `slot_seconds`
    is the time for which slots had a task or could take one, and `busy_seconds` the part of it with a task.
    `task_seconds` is the time of the concluded tasks whose durations are known, and `durations` how many of them ended
    within each bound. `last_error` is the name of the last failed task's error.
    """

    received: int = 0
    succeeded: int = 0
    failed: int = 0
    heartbeat_failures: int = 0
    empty_polls: int = 0
    busy_seconds: float = 0.0
    slot_seconds: float = 0.0
    task_seconds: float = 0.0
    durations: Durations = ()
    last_error: str = ""

    @property
    def concluded(self) -> int:
        """Tasks that succeeded or failed."""
        return self.succeeded + self.failed

    @property
    def failure_share(self) -> float:
        """Share of the concluded tasks that failed, 0 without one."""
        return self.failed / self.concluded if self.concluded else 0.0

    @property
    def any_task(self) -> bool:
        """Whether a task was received, run or concluded, or a task heartbeat failed."""
        return bool(self.received or self.succeeded or self.failed or self.heartbeat_failures or self.busy_seconds)

    def __add__(self, other: "TaskCounts") -> "TaskCounts":
        """Return the sum of both."""
        return TaskCounts(
            received=self.received + other.received,
            succeeded=self.succeeded + other.succeeded,
            failed=self.failed + other.failed,
            heartbeat_failures=self.heartbeat_failures + other.heartbeat_failures,
            empty_polls=self.empty_polls + other.empty_polls,
            busy_seconds=self.busy_seconds + other.busy_seconds,
            slot_seconds=self.slot_seconds + other.slot_seconds,
            task_seconds=self.task_seconds + other.task_seconds,
            durations=added(self.durations, other.durations),
            last_error=other.last_error or self.last_error,
        )


NO_COUNTS = TaskCounts()


def counts_without(all_counts: TaskCounts, part: TaskCounts) -> TaskCounts:
    """Return the outcomes in `all_counts` without those of `part`, which is one part of it."""
    return TaskCounts(
        received=all_counts.received - part.received,
        succeeded=all_counts.succeeded - part.succeeded,
        failed=all_counts.failed - part.failed,
    )


def counts_since(before: Counters, after: Counters, slot_seconds: float = 0.0) -> TaskCounts:
    """Return what one worker did between two reports; `slot_seconds` is the time that its slots had for tasks.

    A counter that has decreased counts as unchanged, so that no sum can ever decrease.
    """
    busy_seconds = max(after.busy_seconds - before.busy_seconds, 0.0)
    return TaskCounts(
        received=max(after.received - before.received, 0),
        succeeded=max(after.succeeded - before.succeeded, 0),
        failed=max(after.failed - before.failed, 0),
        heartbeat_failures=max(after.task_heartbeat_failures - before.task_heartbeat_failures, 0),
        empty_polls=max(after.empty_polls - before.empty_polls, 0),
        busy_seconds=busy_seconds,
        slot_seconds=max(slot_seconds, busy_seconds),
        task_seconds=max(after.task_seconds - before.task_seconds, 0.0),
        durations=increase(after.durations, before.durations),
        last_error=after.last_error if after.failed > before.failed else "",
    )
