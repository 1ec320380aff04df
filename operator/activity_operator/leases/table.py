"""The table of all leases that this process knows, by lease and by pool, with the lease policies of the pools."""

from collections.abc import Iterator

from activity_operator.backlog.protocol import Key, LeaseCounts
from activity_operator.leases.rules import LeaseEntry, LeasePolicy


class LeaseTable:
    """The leases in memory. `leading`: whether this process leads."""

    def __init__(self) -> None:
        self.leading = False
        self._entries: dict[str, LeaseEntry] = {}
        self._by_pool: dict[Key, dict[str, None]] = {}
        self._policies: dict[Key, LeasePolicy] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, lease: str) -> bool:
        return lease in self._entries

    def all(self) -> tuple[LeaseEntry, ...]:
        """Return the entries of all leases."""
        return tuple(self._entries.values())

    def get(self, lease: str) -> LeaseEntry | None:
        """Return the entry of a lease, None if the lease is not held."""
        return self._entries.get(lease)

    def of(self, key: Key) -> Iterator[LeaseEntry]:
        """Return the entries of a pool's leases."""
        return (self._entries[lease] for lease in tuple(self._by_pool.get(key, ())))

    def add(self, entry: LeaseEntry) -> None:
        """Take in a new lease."""
        self._entries[entry.lease.id] = entry
        self._by_pool.setdefault(entry.lease.pool.key, {})[entry.lease.id] = None

    def put(self, entry: LeaseEntry) -> None:
        """Replace the entry of a lease; a lease that is no longer held is left out."""
        if entry.lease.id in self._entries:
            self._entries[entry.lease.id] = entry

    def drop(self, lease: str) -> bool:
        """Forget a lease; return whether it was held."""
        entry = self._entries.pop(lease, None)
        if entry is None:
            return False
        key = entry.lease.pool.key
        del self._by_pool[key][lease]
        if not self._by_pool[key]:
            del self._by_pool[key]
        return True

    def counts(self, key: Key) -> LeaseCounts:
        """Return how many of the pool's leases are unrecorded, held, and claimed without a report that shows them."""
        unrecorded = held = claimed = 0
        for entry in self.of(key):
            if entry.lease.owner is not None:
                claimed += not entry.confirmed
            elif entry.lease.recorded:
                held += not entry.closing
            else:
                unrecorded += 1
        return LeaseCounts(unrecorded=unrecorded, held=held, claimed=claimed)

    def set_policy(self, key: Key, policy: LeasePolicy | None) -> None:
        """Set a pool's lease policy; None removes it. A pool without a policy has the defaults."""
        if policy is None:
            self._policies.pop(key, None)
        else:
            self._policies[key] = policy

    def policy(self, key: Key) -> LeasePolicy:
        """Return a pool's lease policy."""
        return self._policies.get(key, LeasePolicy())
