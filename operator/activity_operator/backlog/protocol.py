"""What the operator asks of a task service, and the words in which the service's answers are passed on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Protocol, Self

from activity_operator.core.observation import MetricPeriod, SourceProblem
from activity_worker.contract import LeasedTask

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PollTarget:
    """Where a pool's tasks are: the activity and the way to its service. Empty means the process's own default."""

    arn: str
    region: str = ""
    endpoint_url: str = ""
    role_arn: str = ""
    external_id: str = ""

    def to_data(self) -> dict[str, str]:
        """Return the form that is kept in a lease record."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, object]) -> Self:
        """Read that form; unknown fields are ignored, missing ones are empty."""
        return cls(**{item.name: str(data.get(item.name, "")) for item in fields(cls)})


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A stretch of time in periods of so many seconds; both ends are whole periods in Unix seconds, `end` is not in."""

    start: int
    end: int
    period: int


@dataclass(frozen=True, slots=True)
class LeaseCounts:
    """A pool's leases with the operator: not recorded yet, recorded and unclaimed, claimed and not shown yet."""

    unrecorded: int = 0
    held: int = 0
    claimed: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.unrecorded + self.held + self.claimed


class SourceProblemError(Exception):
    """The service cannot be used now. `reason` is a condition's reason; `message` names the fix.

    `throttled` says that it only asked for fewer calls: that is no fault of the pool, and not counted as one.
    """

    def __init__(self, reason: str, message: str, *, throttled: bool = False) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.throttled = throttled

    def noted(self, before: SourceProblem | None, now: float) -> SourceProblem:
        """Return what a pool keeps of it: `before` when that says the same, its time when it has the same reason."""
        if before is None or before.reason != self.reason:
            return SourceProblem(self.reason, self.message, now)
        return before if before.message == self.message else SourceProblem(self.reason, self.message, before.since)


class TaskOverError(Exception):
    """The service knows the task no more: timed out, concluded elsewhere, or its execution ended."""


class TokenRefusedError(Exception):
    """The service refuses the call for this token, which need not end the task.

    Emulators answer so to the heartbeat of a task without HeartbeatSeconds.
    """


class TaskService(Protocol):
    """The calls that the operator itself makes; every one may raise `SourceProblemError`."""

    async def poll(self, target: PollTarget) -> LeasedTask | None:
        """Wait for a task as long as the service holds the call; None when none came. Never cancel it."""
        ...

    async def heartbeat(self, target: PollTarget, token: str) -> None:
        """Say that the task is alive; raises `TaskOverError`, `TokenRefusedError`."""
        ...

    async def fail(self, target: PollTarget, token: str, error: str, cause: str) -> None:
        """Fail the task; raises `TaskOverError`, `TokenRefusedError`."""
        ...


class MetricReader(Protocol):
    """A service that counts what became of an activity's tasks, without taking any."""

    async def read(
        self, target: PollTarget, arns: Sequence[str], span: TimeRange
    ) -> Mapping[str, tuple[MetricPeriod, ...] | SourceProblemError]:
        """Return by ARN what was scheduled and started in each period, or why that activity's counts are missing.

        `target` says where and as whom; its ARN is not looked at. Raises SourceProblemError when the service cannot be
        asked at all.
        """
        ...
