"""PURE: a limit on the bytes that the operator reads from each pod, so that one pod cannot take all of its time.

To read and answer a report takes 0.14 ms at least, and 3 ms for the longest possible one (measured, without TLS).
"""

from collections import OrderedDict

#: Bytes that a pod may send at once, and bytes that it gets back each second. A worker with 100 slots that claims as
#: often as it can (50 reports of 7 KB a second) stays below. A flood of the shortest reports is cut to 512 a second.
AT_ONCE = 2_097_152
PER_SECOND = 524_288
#: Least bytes that a report counts as, because its head must be read as well.
LEAST = 1_024
#: Number of pods to remember. The pod with the oldest report is dropped first and then has a full bucket again.
MAX_PODS = 20_000


class TokenBuckets:
    """A token bucket for each pod, by its UID. `now` is in seconds of a monotonic clock."""

    def __init__(self, *, at_once: float = AT_ONCE, per_second: float = PER_SECOND, max_pods: int = MAX_PODS) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._max_pods = max_pods
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, pod_uid: str, size: int, now: float) -> bool:
        """Take `size` bytes from the pod's bucket and return True; return False and take none if too few are left."""
        left, at = self._left.pop(pod_uid, (self._at_once, now))
        left = min(left + (now - at) * self._per_second, self._at_once)
        cost = max(size, LEAST)
        enough = left >= cost
        self._left[pod_uid] = (left - cost if enough else left, now)
        if len(self._left) > self._max_pods:
            self._left.popitem(last=False)
        return enough
