"""PURE: which fault strikes which call. A plan counts calls by name; a fault strikes the n-th call of its name."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The faults of a call, of a watch, or of one event of a watch."""

    CRASH_BEFORE = "crash before"
    """The operator is killed before the server gets the call."""
    CRASH_AFTER = "crash after"
    """The operator is killed when the server has acted and before the answer is passed on."""
    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    CONFLICT = "409"
    GONE = "410"
    THROTTLED = "429"
    """Refused with Retry-After: 1."""
    FAILED = "500"
    UNAVAILABLE = "503"
    CALL_LOST = "call lost"
    """The connection ends before the server gets the call."""
    CUT = "answer cut"
    """The server acts; half of its answer arrives."""
    LOST_ANSWER = "answer lost"
    """The server acts; the connection ends without an answer."""
    LATE_ANSWER = "answer late"
    """The server acts; its answer arrives seconds later."""
    TWICE = "sent twice"
    """The server acts twice, as behind a proxy that repeats unanswered calls; the second answer arrives."""
    ROTATED = "token rotated"
    """The sender's token is refused and its watches end; a second later its file has the next token."""
    HANG = "hang"
    """Never forwarded, never answered; the connection stays open for as long as the caller waits."""
    HALF_OPEN = "half-open"
    """The server acts; nothing ever comes back on a connection that stays open."""
    HELD = "held"
    """The sender is stopped (SIGSTOP); the call is forwarded only when the test releases it."""
    EVENT_LOST = "event lost"
    EVENT_TWICE = "event twice"
    EVENT_LATE = "event late"
    """The event and all later ones of that watch come a second later."""
    EVENT_TORN = "event torn"
    """Half of the event's line arrives, then the watch ends."""
    STREAM_FAILED = "500 in stream"
    """An ERROR event of code 500, then the watch ends."""
    STREAM_SILENT = "stream half-open"
    """The event and all later ones of that watch never come; the connection stays open."""


CRASHES = (Kind.CRASH_BEFORE, Kind.CRASH_AFTER)
REFUSALS = {
    Kind.UNAUTHORIZED: (401, "Unauthorized"),
    Kind.FORBIDDEN: (403, "Forbidden"),
    Kind.CONFLICT: (409, "Conflict"),
    Kind.GONE: (410, "Expired"),
    Kind.THROTTLED: (429, "TooManyRequests"),
    Kind.FAILED: (500, "InternalError"),
    Kind.UNAVAILABLE: (503, "ServiceUnavailable"),
}
#: The task service's refusals that stand in for its answers.
AWS_REFUSALS = {
    Kind.UNAUTHORIZED: (400, "ExpiredTokenException"),
    Kind.FORBIDDEN: (400, "AccessDeniedException"),
    Kind.THROTTLED: (400, "ThrottlingException"),
    Kind.FAILED: (500, "InternalFailure"),
    Kind.UNAVAILABLE: (503, "ServiceUnavailable"),
}
_ON_THE_WAY = (
    Kind.CALL_LOST,
    Kind.CUT,
    Kind.LOST_ANSWER,
    Kind.LATE_ANSWER,
    Kind.TWICE,
    Kind.HANG,
    Kind.HALF_OPEN,
)
ON_KUBE_CALLS = (*REFUSALS, *_ON_THE_WAY, Kind.ROTATED)
ON_AWS_CALLS = (*AWS_REFUSALS, *_ON_THE_WAY)
#: The faults of a GET or a LIST; a duplicated read is left out, because it has no effect.
ON_READS = tuple(kind for kind in ON_KUBE_CALLS if kind not in {Kind.CONFLICT, Kind.TWICE, Kind.ROTATED})
ON_EVENTS = (
    Kind.EVENT_LOST,
    Kind.EVENT_TWICE,
    Kind.EVENT_LATE,
    Kind.EVENT_TORN,
    Kind.STREAM_FAILED,
    Kind.STREAM_SILENT,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of `kind`.

    It strikes `times` calls (or events) of that name in a row, beginning with the `nth`, from 1.
    """

    kind: Kind
    name: str
    nth: int = 1
    times: int = 1

    def __str__(self) -> str:
        return f"{self.kind}: {self.name} #{self.nth}" + (f" x{self.times}" if self.times > 1 else "")


class Plan:
    """Counts calls from `arm` on, and returns each fault when its call comes."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._faults = {
            (fault.name, nth): fault for fault in faults for nth in range(fault.nth, fault.nth + fault.times)
        }
        self._counts: Counter[str] = Counter()
        self._armed = False
        self.calls: list[str] = []
        self.reads: list[str] = []
        self.events: list[str] = []
        self.struck: list[Fault] = []

    def arm(self) -> None:
        """Start to count."""
        self._armed = True

    def disarm(self) -> None:
        """Stop counting; the faults that struck are kept."""
        self._armed = False

    def call(self, name: str) -> Fault | None:
        """Count a call; return its fault."""
        return self._meet(name, self.calls)

    def read(self, name: str) -> Fault | None:
        """Count a GET or a LIST; return its fault."""
        return self._meet(name, self.reads)

    def event(self, name: str) -> Fault | None:
        """Count an event of a watch; return its fault."""
        return self._meet(name, self.events)

    def _meet(self, name: str, seen: list[str]) -> Fault | None:
        if not self._armed:
            return None
        seen.append(name)
        self._counts[name] += 1
        fault = self._faults.pop((name, self._counts[name]), None)
        if fault is not None and fault not in self.struck:
            self.struck.append(fault)
        return fault
