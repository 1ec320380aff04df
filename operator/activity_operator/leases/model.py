"""A lease that the operator took for a pool, its owner, and where it is recorded so that no crash loses it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from activity_operator.backlog.protocol import Key, PollTarget


@dataclass(frozen=True, slots=True)
class PoolRef:
    """The pool that a lease was taken for; one that is created anew under the same name has another UID."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> Key:
        """What registry, queue and sentinels go by."""
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """The worker that claimed a lease: one container start of one pod."""

    pod_uid: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class TaskLease:
    """One task in the operator's hands, or handed to `owner`.

    `id` is `lease_id(token)`; `received_at` Unix seconds; `target` says where to heartbeat and fail it when the pool's
    spec is gone. `record_uid` and `record_version` are of its record, "" before there is one.
    """

    id: str
    pool: PoolRef
    target: PollTarget
    token: str = field(repr=False)
    input: str = field(repr=False)
    received_at: float
    owner: LeaseOwner | None = None
    record_uid: str = ""
    record_version: str = ""

    @property
    def recorded(self) -> bool:
        """Whether it survives this process."""
        return bool(self.record_version)


def target_from_data(data: Mapping[str, object]) -> PollTarget:
    """Read what `PollTarget.to_data` gave, for those who keep records and know no task service."""
    return PollTarget.from_data(data)


class LeaseStoreUnavailableError(Exception):
    """The API server did not answer, or not usefully: the write may or may not have happened. Try again."""


class LeaseRecordConflictError(Exception):
    """The record is not what it was when it was last read: somebody else wrote or removed it."""


class LeaseStore(Protocol):
    """Where leases are recorded. Every call may raise `LeaseStoreUnavailableError`."""

    async def create(self, lease: TaskLease) -> TaskLease:
        """Record the lease; return it as recorded. One that is recorded already is returned as it is there."""
        ...

    async def claim(self, lease: TaskLease, owner: LeaseOwner) -> TaskLease:
        """Write the owner, on the condition that nothing changed; raises `LeaseRecordConflictError`."""
        ...

    async def read(self, lease_id: str) -> TaskLease | None:
        """Return the lease as it is recorded now, None if it is not."""
        ...

    async def delete(self, lease: TaskLease) -> None:
        """Remove the record; one that is gone is no error."""
        ...

    async def list(self) -> tuple[TaskLease, ...]:
        """Return every recorded lease."""
        ...
