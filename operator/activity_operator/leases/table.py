"""The table of all leases that this process knows, by lease and by pool, with the lease policies of the pools.

A report, a claim, a poll and a changed lease ask for counts and for a few entries. None of them may cost more because
the pool holds many leases, so each pool has counters and an index that every change of an entry keeps up to date.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from activity_operator.backlog.protocol import Key, LeaseCounts, LeaseTotals
from activity_operator.leases.model import TaskLease
from activity_operator.leases.rules import LeaseEntry, LeasePolicy

#: Seconds for which etcd keeps the revisions of a deleted record: the API server compacts it every 5 minutes.
HISTORY_SECONDS = 300.0

_Age = tuple[float, str]


@dataclass(slots=True)
class _PoolLeases:
    """The leases of one pool. `waiting` are the recorded ones that a worker may claim, oldest first.

    `unshown` counts the leases that no report shows yet; `size_bytes` are the payloads and tokens of all leases.
    """

    entries: dict[str, LeaseEntry] = field(default_factory=dict)
    waiting: list[_Age] = field(default_factory=list)
    by_pod: dict[str, dict[str, None]] = field(default_factory=dict)
    unrecorded: int = 0
    held: int = 0
    claimed: int = 0
    unshown: int = 0
    size_bytes: int = 0

    def count(self, entry: LeaseEntry, sign: int) -> None:
        """Add the entry to the counters and the indexes (`sign` 1), or take it out of them (-1)."""
        lease = entry.lease
        self.size_bytes += sign * lease.size_bytes
        self.unshown += sign * (not entry.confirmed)
        if lease.owner is not None:
            self.claimed += sign * (not entry.confirmed)
            self._index_owner(lease.owner.pod_uid, lease.id, sign)
        elif not lease.recorded:
            self.unrecorded += sign
        elif not entry.closing:
            self.held += sign
            self._index_waiting(lease, sign)

    def _index_owner(self, pod_uid: str, lease: str, sign: int) -> None:
        if sign > 0:
            self.by_pod.setdefault(pod_uid, {})[lease] = None
            return
        del self.by_pod[pod_uid][lease]
        if not self.by_pod[pod_uid]:
            del self.by_pod[pod_uid]

    def _index_waiting(self, lease: TaskLease, sign: int) -> None:
        age = (lease.received_at, lease.id)
        if sign > 0:
            insort(self.waiting, age)
        else:
            del self.waiting[bisect_left(self.waiting, age)]


class LeaseTable:
    """The leases in memory. `leading`: whether this process leads. `now` returns Unix seconds."""

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self.leading = False
        self._now = now
        self._pool_of: dict[str, _PoolLeases] = {}
        self._pools: dict[Key, _PoolLeases] = {}
        self._policies: dict[Key, LeasePolicy] = {}
        self._totals = LeaseTotals()
        #: When the history of an ended lease's record has left etcd (Unix seconds), and its bytes; soonest first.
        self._history: deque[tuple[float, int]] = deque()
        self._history_bytes = 0

    def __len__(self) -> int:
        return len(self._pool_of)

    def __contains__(self, lease: str) -> bool:
        return lease in self._pool_of

    def all(self) -> tuple[LeaseEntry, ...]:
        """Return the entries of all leases."""
        return tuple(pool.entries[lease] for lease, pool in self._pool_of.items())

    def get(self, lease: str) -> LeaseEntry | None:
        """Return the entry of a lease, None if the lease is not held."""
        pool = self._pool_of.get(lease)
        return None if pool is None else pool.entries[lease]

    def has_leases(self, key: Key) -> bool:
        """Whether the pool has a lease."""
        return key in self._pools

    def waiting(self, key: Key) -> Iterator[LeaseEntry]:
        """Yield the pool's recorded leases without an owner, oldest first, without those whose task is being failed.

        The leases must not change during the iteration.
        """
        pool = self._pools.get(key)
        if pool is not None:
            for _, lease in pool.waiting:
                yield pool.entries[lease]

    def owned_by(self, key: Key, pod_uid: str) -> tuple[LeaseEntry, ...]:
        """Return the pool's leases whose owner is or was a worker of this pod."""
        pool = self._pools.get(key)
        return () if pool is None else tuple(pool.entries[lease] for lease in pool.by_pod.get(pod_uid, ()))

    def add(self, entry: LeaseEntry) -> None:
        """Take in a new lease."""
        pool = self._pools.setdefault(entry.lease.pool.key, _PoolLeases())
        self._pool_of[entry.lease.id] = pool
        self._count(pool, None, entry)

    def put(self, entry: LeaseEntry) -> None:
        """Replace the entry of a lease; a lease that is no longer held is left out."""
        pool = self._pool_of.get(entry.lease.id)
        if pool is not None:
            self._count(pool, pool.entries[entry.lease.id], entry)

    def drop(self, lease: str) -> bool:
        """Forget a lease; return whether it was held."""
        pool = self._pool_of.pop(lease, None)
        if pool is None:
            return False
        entry = pool.entries[lease]
        self._count(pool, entry, None)
        if not pool.entries:
            del self._pools[entry.lease.pool.key]
        return True

    def add_history(self, lease: TaskLease) -> None:
        """Count the bytes of a lease whose record is removed for as long as etcd keeps them."""
        self._history.append((self._now() + HISTORY_SECONDS, lease.size_bytes))
        self._history_bytes += lease.size_bytes

    def _count(self, pool: _PoolLeases, before: LeaseEntry | None, after: LeaseEntry | None) -> None:
        unshown, size_bytes = pool.unshown, pool.size_bytes
        if before is not None:
            del pool.entries[before.lease.id]
            pool.count(before, -1)
        if after is not None:
            pool.entries[after.lease.id] = after
            pool.count(after, 1)
        self._totals = LeaseTotals(
            leases=self._totals.leases + pool.unshown - unshown,
            size_bytes=self._totals.size_bytes + pool.size_bytes - size_bytes,
            pools=self._totals.pools + (pool.unshown > 0) - (unshown > 0),
        )

    def counts(self, key: Key) -> LeaseCounts:
        """Return how many leases the pool has, and their size."""
        pool = self._pools.get(key)
        if pool is None:
            return LeaseCounts()
        return LeaseCounts(pool.unrecorded, pool.held, pool.claimed, pool.size_bytes)

    def totals(self) -> LeaseTotals:
        """Return how many leases all pools have together; an ended lease's bytes count for HISTORY_SECONDS more."""
        now = self._now()
        while self._history and self._history[0][0] <= now:
            self._history_bytes -= self._history.popleft()[1]
        return replace(self._totals, size_bytes=self._totals.size_bytes + self._history_bytes)

    def set_policy(self, key: Key, policy: LeasePolicy | None) -> None:
        """Set a pool's lease policy; None removes it. A pool without a policy has the defaults."""
        if policy is None:
            self._policies.pop(key, None)
            return
        before = self.policy(key)
        resumed = before.suspended and not policy.suspended
        self._policies[key] = replace(policy, workers_since=self._now() if resumed else before.workers_since)

    def policy(self, key: Key) -> LeasePolicy:
        """Return a pool's lease policy."""
        return self._policies.get(key, LeasePolicy())
