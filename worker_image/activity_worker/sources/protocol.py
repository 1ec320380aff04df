"""What a worker needs of a task source: lease a task, keep the lease alive, conclude it."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Task:
    """One leased task: the service's token, and its input as JSON text. Neither shows in a repr or a log."""

    token: str = field(repr=False)
    input: str = field(repr=False)


class Source(Protocol):
    """Where tasks come from. Every call may raise `errors.SourceError`; retrying is the caller's business."""

    @property
    def name(self) -> str:
        """What is polled: for Step Functions the activity's ARN."""
        ...

    async def lease(self, worker_name: str) -> Task | None:
        """Poll once and return the task, or None after an empty poll. Cancelling it may lose a task."""
        ...

    async def heartbeat(self, token: str) -> None:
        """Say that the task is being worked on; raises `LeaseLostError` when it is no longer ours."""
        ...

    async def succeed(self, token: str, output: str) -> None:
        """Conclude the task with `output`, which is JSON text."""
        ...

    async def fail(self, token: str, error: str, cause: str) -> None:
        """Conclude the task with an error name and a cause."""
        ...

    async def close(self) -> None:
        """Free what the source holds. It is not used afterwards."""
        ...
