"""A lease that the operator took for a pool, its owner, and the identity of its record."""

import json
from dataclasses import dataclass, field

from activity_operator.backlog.protocol import Key, PollTarget
from activity_worker.contract import ScheduledActivity

#: Bytes of a lease record in etcd besides payload and token: labels, target, pool, managed fields (measured: 1,450).
RECORD_BYTES = 1500


@dataclass(frozen=True, slots=True)
class PoolRef:
    """The pool of a lease. A pool that is deleted and created again under the same name has another UID."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> Key:
        """The key by which registry, queue and sentinels identify the pool."""
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """The worker that claimed a lease: one container start of one pod."""

    pod_uid: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class TaskLease:
    """The lease of one task, held by the operator or claimed by `owner`.

    `id` is `lease_id(token)`; `received_at` is in Unix seconds. `target` is the service for heartbeats and failures,
    kept here because the pool's spec may be deleted. `record_uid` and `record_version` identify the record, "" before
    there is one. `activity` is the task's type and execution on Amazon SWF, None elsewhere.
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
    activity: ScheduledActivity | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes of the lease's record in etcd: payload, token, the task's activity, and what every record has."""
        activity = 0 if self.activity is None else len(encoded(json.dumps(self.activity.to_wire())))
        return len(encoded(self.token)) + len(encoded(self.input)) + activity + RECORD_BYTES

    @property
    def recorded(self) -> bool:
        """Whether the lease is recorded, so that it survives this process."""
        return bool(self.record_version)


def encoded(text: str) -> bytes:
    """Return the text as UTF-8. Lone surrogates, which a JSON payload may name by an escape, are kept as they are."""
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> str:
    """Return the text that `encoded` has encoded; raises ValueError for any other bytes."""
    return data.decode("utf-8", "surrogatepass")
