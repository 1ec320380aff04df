"""PURE: token buckets, and the limit on the bytes that the operator reads from each pod.

Without the limit, one pod could take all of the operator's time. To read and answer a report takes 0.14 ms at least,
and 3 ms for the longest possible one (measured, without TLS).
"""

from collections import OrderedDict
from collections.abc import Hashable

#: Bytes that a pod may send at once, and bytes that it gets back each second. A worker with 100 slots that claims as
#: often as it can (50 reports of 7 KB a second) stays below. A flood of the shortest reports is cut to 512 a second.
AT_ONCE = 2_097_152
PER_SECOND = 524_288
#: Least bytes that a report counts as, because its head must be read as well.
LEAST = 1_024
#: Number of pods to remember. The pod with the oldest report is dropped first and then has a full bucket again.
MAX_PODS = 20_000


class TokenBuckets:
    """A token bucket for each name. `now` is in seconds and never goes back.

    A bucket that is full again says nothing, so it is forgotten: pods come and go, each with a name of its own.
    """

    def __init__(self, *, at_once: float, per_second: float, most: int) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._most = most
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, name: Hashable, tokens: float, now: float) -> bool:
        """Take the tokens from the bucket and return True; return False and take none if too few are left."""
        left = self._refilled(name, now)
        enough = left >= tokens
        self._put(name, left - tokens if enough else left, now)
        return enough

    def give_back(self, name: Hashable, tokens: float, now: float) -> None:
        """Put unused tokens back into the bucket."""
        self._put(name, min(self._refilled(name, now) + tokens, self._at_once), now)

    def _refilled(self, name: Hashable, now: float) -> float:
        left, at = self._left.pop(name, (self._at_once, now))
        return min(left + (now - at) * self._per_second, self._at_once)

    def _put(self, name: Hashable, left: float, now: float) -> None:
        self._left[name] = (left, now)
        while len(self._left) > self._most or self._is_oldest_full(now):
            self._left.popitem(last=False)

    def _is_oldest_full(self, now: float) -> bool:
        left, at = next(iter(self._left.values()), (0.0, now))
        return left + (now - at) * self._per_second >= self._at_once


class ByteLimit:
    """The bytes that each pod may still send, by its UID. `now` is in seconds of a monotonic clock."""

    def __init__(self, *, at_once: float = AT_ONCE, per_second: float = PER_SECOND, max_pods: int = MAX_PODS) -> None:
        self._buckets = TokenBuckets(at_once=at_once, per_second=per_second, most=max_pods)

    def take(self, pod_uid: str, size: int, now: float) -> bool:
        """Take `size` bytes of the pod's and return True; return False and take none if too few are left."""
        return self._buckets.take(pod_uid, max(size, LEAST), now)
