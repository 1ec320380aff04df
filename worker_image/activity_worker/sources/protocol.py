"""What a worker needs of a task source: lease a task, keep the lease alive, conclude it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from activity_worker.contract import LeasedTask
from activity_worker.task import RetryRequest

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class Source(Protocol):
    """Where tasks come from. Every call may raise `errors.SourceError`; retrying is the caller's business."""

    @property
    def name(self) -> str:
        """What is polled: for Step Functions the activity's ARN."""
        ...

    async def lease(self, worker_name: str) -> LeasedTask | None:
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


@runtime_checkable
class CancellableSource(Source, Protocol):
    """A source that keeps what a heartbeat says, and that may ask for the cancellation of a task."""

    async def heartbeat_with(self, token: str, details: str) -> bool:
        """Send a heartbeat with `details`, a text; return whether the cancellation of the task is requested."""
        ...

    async def confirm_cancellation(self, token: str, details: str) -> None:
        """Conclude a task as cancelled, after `heartbeat_with` has told that this is requested."""
        ...


@runtime_checkable
class CordonedSource(Source, Protocol):
    """A source whose polls wait here, and not at a service."""

    def cordon(self, on: bool) -> None:
        """End the polls that wait, or (False) let them wait again."""
        ...


@runtime_checkable
class RetryingSource(Source, Protocol):
    """A source that leaves it to the worker whether a failed task is tried again."""

    async def fail_with_retry(self, token: str, error: str, cause: str, retry: RetryRequest) -> None:
        """Conclude the task with a failure, or have it tried again."""
        ...


@runtime_checkable
class FetchingSource(Source, Protocol):
    """A source whose answer to a conclusion may bring the next task."""

    def want_next(self, token: str, wanted: bool) -> None:
        """Say before a conclusion whether its answer may bring a task. It is run by the same slot, at once."""
        ...

    def take_next(self, token: str) -> LeasedTask | None:
        """Return the task that came with the conclusion of `token`, once."""
        ...


@runtime_checkable
class SharedSource(Source, Protocol):
    """A source that handlers' processes deal with too: leases are taken and kept here, the rest is done there."""

    @property
    def max_heartbeat_seconds(self) -> float:
        """The longest time between two heartbeats with which leases last."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """What a handler's process needs in its environment."""
        ...

    def set_capabilities(self, capabilities: Mapping[str, Any] | None) -> None:
        """Take what a handler's process can run; None for a plain function. Raises `CapabilitiesError`."""
        ...

    def count_call(self, note: Mapping[str, Any]) -> None:
        """Count what a handler's process did."""
        ...

    def cordon(self, on: bool) -> None:
        """End the polls that wait, or (False) let them wait again."""
        ...

    def register(self, registry: "CollectorRegistry") -> None:
        """Put its metrics there. Called once, before anything else."""
        ...


@dataclass(frozen=True, slots=True)
class SourceForms:
    """A source under each of the protocols for single tasks that it has; None for the others.

    Looked up once for a slot: with Python 3.11 each look takes as long as a call's signature.
    """

    cancellable: CancellableSource | None
    retrying: RetryingSource | None
    fetching: FetchingSource | None

    @classmethod
    def of(cls, source: Source) -> "SourceForms":
        """Look them up."""
        return cls(
            source if isinstance(source, CancellableSource) else None,
            source if isinstance(source, RetryingSource) else None,
            source if isinstance(source, FetchingSource) else None,
        )
