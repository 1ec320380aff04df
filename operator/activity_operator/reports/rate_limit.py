"""PURE: how much each pod may have read of what it sends, so that none takes the operator's time from the others.

To read and answer a report takes 0.14 ms at least, and 3 ms for the longest there can be (measured, without TLS).
"""

from collections import OrderedDict

#: Bytes that a pod may send at once, and that it gets back in a second. A worker of 100 slots that claims as often as
#: it can (50 reports of 7 KB a second) stays within; who sends the shortest as fast as they are read gets 512 a second.
AT_ONCE = 2_097_152
PER_SECOND = 524_288
#: What the shortest report counts for: its head has to be read, too.
LEAST = 1_024
#: Pods that are remembered; one that was not heard for longest has everything again.
MAX_PODS = 20_000


class TokenBuckets:
    """An allowance for each pod, by its UID. `now` is seconds of any clock that does not go back."""

    def __init__(self, *, at_once: float = AT_ONCE, per_second: float = PER_SECOND, max_pods: int = MAX_PODS) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._max_pods = max_pods
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, pod_uid: str, size: int, now: float) -> bool:
        """Count a report of `size` bytes; False, and nothing counted, when the pod has not so much left."""
        left, at = self._left.pop(pod_uid, (self._at_once, now))
        left = min(left + (now - at) * self._per_second, self._at_once)
        cost = max(size, LEAST)
        enough = left >= cost
        self._left[pod_uid] = (left - cost if enough else left, now)
        if len(self._left) > self._max_pods:
            self._left.popitem(last=False)
        return enough
