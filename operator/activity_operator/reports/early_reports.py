"""PURE: which workers may report a change of their slots before their interval ends.

In a large fleet an interval lasts minutes, and a pool that grows or shrinks needs the change at once. Each pool has a
token bucket of its own, so that the size of the fleet takes nothing from a quiet pool. A bucket of all pools bounds the
operator's work.
"""

from activity_operator.reports.rate_limit import TokenBuckets

Key = tuple[str, str]

#: Early reports of a pool at once, and how many come back each second. Twenty are a whole small pool.
POOL_AT_ONCE = 20.0
POOL_PER_SECOND = 5.0
#: Share of the report rate that early reports of all pools may have in addition.
FLEET_SHARE = 0.5
#: Most pools to remember. The one with the oldest grant is dropped first and then has a full bucket again.
MAX_POOLS = 20_000


class EarlyReports:
    """Grants early reports. `rate` is the report rate of all workers; `now` is in seconds and never goes back.

    A grant takes a token at once, so that no more workers than tokens can use one. An unused grant is given back.
    """

    def __init__(self, rate: float) -> None:
        self._pools = TokenBuckets(at_once=POOL_AT_ONCE, per_second=POOL_PER_SECOND, most=MAX_POOLS)
        self._fleet = TokenBuckets(at_once=rate, per_second=FLEET_SHARE * rate, most=1)

    def grant(self, key: Key, now: float) -> bool:
        """Return whether one worker of the pool may report early once before its next report is due."""
        if not self._pools.take(key, 1.0, now):
            return False
        if self._fleet.take("", 1.0, now):
            return True
        self._pools.give_back(key, 1.0, now)
        return False

    def give_back(self, key: Key, now: float) -> None:
        """Take back a grant that the worker has not used."""
        self._pools.give_back(key, 1.0, now)
        self._fleet.give_back("", 1.0, now)
