"""PURE: faults that strike the next call or event with a fitting name, whatever its number."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.calls import OPERATOR, WORKER
from tests.faults.plan import Fault, Kind, Plan

#: Periodic calls, which write no object of a pool.
CLOCKWORK = frozenset({"PUT leases", "POST tokenreviews"})


@dataclass(slots=True)
class CallFault:
    """A fault for the next `left` calls or events whose names `suits`, until `end` on the clock."""

    kind: Kind
    suits: Callable[[str], bool]
    left: int
    end: float
    struck: int = 0


class NextCallFaults(Plan):
    """A plan without numbers: faults can be added at any time. It counts writes by name; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._calls: list[CallFault] = []
        self._events: list[CallFault] = []
        self.writes: Counter[str] = Counter()

    def add(self, kind: Kind, suits: Callable[[str], bool], times: int, seconds: float) -> CallFault:
        """Let `kind` strike the next calls or events with such names; return the fault, which counts them."""
        fault = CallFault(kind, suits, times, self._clock() + seconds)
        (self._events if kind.name.startswith(("EVENT", "STREAM")) else self._calls).append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        self._calls.clear()
        self._events.clear()

    def call(self, name: str) -> Fault | None:
        """Count a call; return its fault."""
        if not name.startswith(("WATCH", OPERATOR, WORKER)) and name not in CLOCKWORK:
            self.writes[name] += 1
        return self._next(self._calls, name)

    def read(self, name: str) -> Fault | None:
        """Return the fault of a GET or a LIST."""
        return self._next(self._calls, name)

    def event(self, name: str) -> Fault | None:
        """Return the fault of an event of a watch."""
        return self._next(self._events, name)

    def _next(self, faults: list[CallFault], name: str) -> Fault | None:
        now = self._clock()
        faults[:] = [fault for fault in faults if fault.left and fault.end > now]
        for fault in faults:
            if fault.suits(name):
                fault.left -= 1
                fault.struck += 1
                return Fault(fault.kind, name, fault.struck)
        return None
