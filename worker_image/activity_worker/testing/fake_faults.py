"""Faults on demand: refusals, throttling, silence, and replies lost after the deed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from activity_worker.testing.fake_tasks import FakeServiceError

ANY = "*"


class Fault(StrEnum):
    """What may go wrong with a call."""

    THROTTLE = "throttle"
    """Refused with ThrottlingException; nothing is done."""
    DENY = "deny"
    """Refused in the service's words for a missing permission; nothing is done."""
    BAD_SIGNATURE = "bad-signature"
    """Refused with InvalidSignatureException; nothing is done."""
    SERVER_ERROR = "server-error"
    """Status 500, InternalFailure; nothing is done."""
    DROP_REPLY = "drop-reply"
    """Acted on, then the connection breaks before the reply."""
    HANG = "hang"
    """Never answered and nothing is done, until the faults are cleared or the fake ends."""


#: A refusal: its code, its words and the HTTP status.
Refusal = tuple[str, str, int]

ACCESS_DENIED: Refusal = ("AccessDeniedException", "User is not authorized to perform this action", 400)
_REFUSALS: dict[Fault, Refusal] = {
    Fault.THROTTLE: ("ThrottlingException", "Rate exceeded", 400),
    Fault.BAD_SIGNATURE: ("InvalidSignatureException", "The request signature does not match", 403),
    Fault.SERVER_ERROR: ("InternalFailure", "The request processing has failed because of an unknown error", 500),
}


@dataclass(slots=True)
class _Injected:
    fault: Fault
    times: int | None


@dataclass(slots=True)
class _Bucket:
    rate: float
    burst: float
    tokens: float
    filled_at: float


class FakeFaults:
    """The faults in force. `seen` counts how often each struck, by `operation:fault`. `denied` is how DENY refuses."""

    def __init__(self, now: Callable[[], float], *, denied: Refusal = ACCESS_DENIED) -> None:
        self._now = now
        self._refusals = _REFUSALS | {Fault.DENY: denied}
        self._injected: dict[str, list[_Injected]] = {}
        self._buckets: dict[str, _Bucket] = {}
        self.seen: Counter[str] = Counter()
        self.active = False

    def inject(self, operation: str, fault: Fault, times: int | None = 1) -> None:
        """Apply `fault` to the next `times` calls of `operation` (`*`: of any; None: until cleared)."""
        self._injected.setdefault(operation, []).append(_Injected(fault, times))
        self.active = True

    def throttle(self, operation: str, *, per_second: float, burst: float = 1.0) -> None:
        """Refuse calls of `operation` beyond a rate, as the service's token buckets do."""
        self._buckets[operation] = _Bucket(per_second, burst, burst, self._now())
        self.active = True

    def clear(self) -> None:
        """End all faults and limits."""
        self._injected.clear()
        self._buckets.clear()
        self.active = False

    def next_fault(self, operation: str) -> Fault | None:
        """Raise a refusal, or return the fault that the caller has to act out, or None."""
        fault = self._next(operation) or self._next(ANY) or self._over_rate(operation)
        if fault is None:
            return None
        self.seen[f"{operation}:{fault}"] += 1
        if fault in self._refusals:
            raise FakeServiceError(*self._refusals[fault])
        return fault

    def _next(self, operation: str) -> Fault | None:
        waiting = self._injected.get(operation)
        if not waiting:
            return None
        first = waiting[0]
        if first.times is not None:
            first.times -= 1
            if first.times <= 0:
                waiting.pop(0)
        return first.fault

    def _over_rate(self, operation: str) -> Fault | None:
        bucket = self._buckets.get(operation)
        if bucket is None:
            return None
        now = self._now()
        bucket.tokens = min(bucket.burst, bucket.tokens + (now - bucket.filled_at) * bucket.rate)
        bucket.filled_at = now
        if bucket.tokens < 1:
            return Fault.THROTTLE
        bucket.tokens -= 1
        return None
