"""A lease that the operator took for a pool, its owner, and where it is recorded so that no crash loses it."""

from dataclasses import dataclass, field

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
