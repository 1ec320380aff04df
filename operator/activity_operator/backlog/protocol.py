"""The interface between the operator and a task service: targets, calls, and the errors of the calls."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Protocol, Self

from activity_operator.core.observation import MetricPeriod, SourceProblem
from activity_worker.contract import LeasedTask

Key = tuple[str, str]
#: Fields that the lease record of another source leaves out, as before.
_SWF_ONLY = frozenset({"domain", "task_list"})


@dataclass(frozen=True, slots=True)
class PollTarget:
    """A pool's activity, and the region, endpoint and role for its calls. "" means the process's own default.

    `domain` and `task_list` are those of Amazon SWF, which has no activities; `arn` is "" then.
    """

    arn: str
    region: str = ""
    endpoint_url: str = ""
    role_arn: str = ""
    external_id: str = ""
    domain: str = ""
    task_list: str = ""

    def to_data(self) -> dict[str, str]:
        """Return the target as a lease record stores it."""
        return {name: text for name, text in asdict(self).items() if text or name not in _SWF_ONLY}

    @classmethod
    def from_data(cls, data: Mapping[str, object]) -> Self:
        """Return the target of a lease record; unknown fields are ignored, missing fields are ""."""
        return cls(**{item.name: str(data.get(item.name, "")) for item in fields(cls)})


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A range of whole periods of `period` seconds. `start` and the exclusive `end` are Unix seconds."""

    start: int
    end: int
    period: int


@dataclass(frozen=True, slots=True)
class LeaseCounts:
    """How many of a pool's leases are unrecorded, recorded and unclaimed (held), and claimed but not reported yet.

    `size_bytes` are the payloads and tokens of all of the pool's leases.
    """

    unrecorded: int = 0
    held: int = 0
    claimed: int = 0
    size_bytes: int = 0

    @property
    def total(self) -> int:
        """The number of these leases."""
        return self.unrecorded + self.held + self.claimed


@dataclass(frozen=True, slots=True)
class LeaseTotals:
    """The leases of all pools that no report shows yet, the number of their pools, and the bytes that count.

    `size_bytes` are the payloads and tokens of all leases held, and those of ended ones whose record etcd still keeps.
    """

    leases: int = 0
    size_bytes: int = 0
    pools: int = 0


class SourceProblemError(Exception):
    """The service cannot be used now. `reason` is a condition's reason; `message` names the fix.

    `throttled` says that the service only asked for fewer calls, which does not count as a failure of the pool.
    """

    def __init__(self, reason: str, message: str, *, throttled: bool = False) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.throttled = throttled

    def noted(self, before: SourceProblem | None, now: float) -> SourceProblem:
        """Return the problem as a pool stores it.

        An equal `before` is returned unchanged. A `before` with the same reason passes on its time.
        """
        if before is None or before.reason != self.reason:
            return SourceProblem(self.reason, self.message, now)
        return before if before.message == self.message else SourceProblem(self.reason, self.message, before.since)


class TaskOverError(Exception):
    """The task is over for the service: it timed out, another caller concluded it, or its execution ended."""


class TokenRefusedError(Exception):
    """The service refuses this task token; the task may still be running.

    Emulators refuse the heartbeat of a task without HeartbeatSeconds this way.
    """


class TaskService(Protocol):
    """The calls that the operator itself makes; each may raise `SourceProblemError`."""

    async def poll(self, target: PollTarget) -> LeasedTask | None:
        """Wait for a task while the service holds the call; return None without a task. Never cancel the call."""
        ...

    async def heartbeat(self, target: PollTarget, token: str) -> None:
        """Send a task heartbeat; raises `TaskOverError`, `TokenRefusedError`."""
        ...

    async def fail(self, target: PollTarget, token: str, error: str, cause: str) -> None:
        """Fail the task; raises `TaskOverError`, `TokenRefusedError`."""
        ...


class MetricReader(Protocol):
    """A service that publishes metrics of an activity's tasks; reading them takes no task."""

    async def read(
        self, target: PollTarget, arns: Sequence[str], span: TimeRange
    ) -> Mapping[str, tuple[MetricPeriod, ...] | SourceProblemError]:
        """Return by ARN the tasks scheduled and started in each period, or why the activity's metrics are missing.

        `target` gives region, endpoint and role; its ARN is ignored. Raises SourceProblemError if the service cannot be
        used at all.
        """
        ...
