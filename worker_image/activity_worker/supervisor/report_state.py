"""PURE: what a worker reports, and when.

A report goes at once if it is the first one, or has a change to draining, drained, stopping or stopped, an exit output,
a new claim, or a lease that a stopped worker has released. All other changes wait together for the interval that the
last reply ordered. There is one exception, because the operator scales on it: a worker that became saturated (every
slot busy) or idle reports this within `EDGE_SPACING_SECONDS`, if the last reply allowed an early report. An older
operator, whose replies say nothing about early reports, gets them while its interval is at most
`EDGE_MAX_INTERVAL_SECONDS`, as in small fleets.
"""

import math
from collections import deque
from dataclasses import dataclass, field, replace

from activity_worker.contract import (
    MAX_BUFFERED_EVENTS,
    Counters,
    Directive,
    ExitOutput,
    Grant,
    HeldLease,
    LifecycleEvent,
    PollTrouble,
    Reply,
    Report,
    WorkerState,
)
from activity_worker.supervisor.claims import ClaimBook
from activity_worker.wire.backoff import pause_after

#: The interval until a reply orders another one; the shortest and the longest pause after a failed report.
FIRST_INTERVAL_SECONDS = 1.0
RETRY_FIRST_SECONDS = 0.5
RETRY_MAX_SECONDS = 10.0
#: Least seconds between a report and an early one, and the longest interval of an older operator with early reports.
EDGE_SPACING_SECONDS = 0.25
EDGE_MAX_INTERVAL_SECONDS = 2.0
#: A standby answers 421: the next try goes out at once, further ones with this pause while a leader is being elected.
MISDIRECTED_PAUSE_SECONDS = 0.25

_AT_ONCE = frozenset({WorkerState.DRAINING, WorkerState.DRAINED, WorkerState.STOPPING, WorkerState.STOPPED})


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The identity of the reporting pod; `incarnation` is new at every container start."""

    namespace: str
    pool: str
    pod_name: str
    pod_uid: str
    incarnation: str
    slots: int
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """What the worker does at one moment."""

    state: WorkerState
    busy: int = 0
    open_polls: int = 0
    idle_seconds: float = 0.0
    leases: tuple[HeldLease, ...] = ()
    counters: Counters = field(default_factory=Counters)
    exit: ExitOutput | None = None
    poll_trouble: PollTrouble | None = None


@dataclass(frozen=True, slots=True)
class Instructions:
    """What a reply orders. `valid` is False for the reply of a former leader, which the worker must ignore."""

    valid: bool
    directive: Directive = Directive.RUN
    grants: tuple[Grant, ...] = ()


class ReportState:
    """The worker's side of the report protocol, without clock and without network. One report is in flight at most."""

    def __init__(self, identity: PodIdentity) -> None:
        self.claims = ClaimBook()
        self.term = 0
        self.interval_seconds = FIRST_INTERVAL_SECONDS
        self.dropped_events = 0
        self._identity = identity
        self._events: deque[LifecycleEvent] = deque()
        self._event_sequence = 0
        self._sequence = 0
        self._in_flight: Report | None = None
        self._delivered: Report | None = None
        self._sent_at = -math.inf
        self._not_before = -math.inf
        self._failures = 0
        self._misdirections = 0
        self._early_report = False

    def is_known(self, snapshot: WorkerSnapshot) -> bool:
        """Whether the leader has answered a report with this state, this exit output and every released lease."""
        last = self._delivered
        if last is None or self._is_unreported(last):
            return False
        return last.state is snapshot.state and last.exit == snapshot.exit

    def record(self, name: str, at: float, message: str = "") -> None:
        """Keep an event (`at`: Unix seconds) until it is acknowledged. A full buffer drops its oldest one."""
        self._event_sequence += 1
        self._events.append(LifecycleEvent(self._event_sequence, name, at, message))
        if len(self._events) > MAX_BUFFERED_EVENTS:
            self._events.popleft()
            self.dropped_events += 1

    def due_at(self, snapshot: WorkerSnapshot) -> float:
        """Return when the next report is due: at once if that is in the past, infinity while a report is in flight."""
        if self._in_flight is not None:
            return math.inf
        return max(self._wanted_at(snapshot), self._not_before)

    def _wanted_at(self, snapshot: WorkerSnapshot) -> float:
        last = self._delivered
        if last is None or set(self.claims.claims) - set(last.claims):
            return -math.inf
        if snapshot.exit != last.exit or (snapshot.state != last.state and snapshot.state in _AT_ONCE):
            return -math.inf
        if snapshot.state is WorkerState.STOPPED and self._is_unreported(last):
            return -math.inf
        if self._early_report and _edge(snapshot.busy, last):
            return self._sent_at + min(EDGE_SPACING_SECONDS, self.interval_seconds)
        return self._sent_at + self.interval_seconds

    def _is_unreported(self, last: Report) -> bool:
        return bool(self.claims.released - set(last.released))

    def compose(self, snapshot: WorkerSnapshot, now: float) -> Report:
        """Return the next report and count it as in flight until `answered`, `failed` or `misdirected` is called."""
        self._sequence += 1
        identity = self._identity
        self._in_flight = Report(
            namespace=identity.namespace,
            pool=identity.pool,
            pod_name=identity.pod_name,
            pod_uid=identity.pod_uid,
            incarnation=identity.incarnation,
            sequence=self._sequence,
            state=snapshot.state,
            slots=identity.slots,
            busy=min(snapshot.busy, identity.slots),
            open_polls=snapshot.open_polls,
            idle_seconds=snapshot.idle_seconds,
            leases=snapshot.leases,
            counters=snapshot.counters,
            events=tuple(self._events),
            dropped_events=self.dropped_events,
            claims=tuple(self.claims.claims),
            released=tuple(sorted(self.claims.released)),
            exit=snapshot.exit,
            poll_trouble=snapshot.poll_trouble,
            runtime=identity.runtime,
        )
        self._sent_at = now
        return self._in_flight

    def answered(self, reply: Reply) -> Instructions:
        """Process a leader's reply. One of a lower term is ignored: the report is sent again after the interval."""
        report = self._take_in_flight()
        if reply.term < self.term:
            self._not_before = self._sent_at + self.interval_seconds
            return Instructions(valid=False)
        self.term = reply.term
        self._failures = self._misdirections = 0
        self.interval_seconds = reply.next_report_seconds
        small = reply.next_report_seconds <= EDGE_MAX_INTERVAL_SECONDS
        self._early_report = small if reply.early_report is None else reply.early_report
        # The next report is compared with this one: a claim in it has been delivered, and is not urgent again.
        self._delivered = replace(report, events=(), leases=())
        while self._events and self._events[0].sequence <= reply.ack:
            self._events.popleft()
        grants = self.claims.answered(reply, report.claims)
        return Instructions(valid=True, directive=reply.directive, grants=grants)

    def failed(self, now: float) -> None:
        """Record a report without an answer. The next one follows after 0.5 s; the pause doubles up to 10 s."""
        self._take_in_flight()
        self._failures += 1
        pause = pause_after(self._failures, first_seconds=RETRY_FIRST_SECONDS, max_seconds=RETRY_MAX_SECONDS)
        self._not_before = now + pause

    def misdirected(self, now: float) -> None:
        """Record an answer 421: another replica leads, and a new connection may reach it at once."""
        self._take_in_flight()
        self._not_before = now + (MISDIRECTED_PAUSE_SECONDS if self._misdirections else 0.0)
        self._misdirections += 1
        if self._delivered is not None:
            self._sent_at = -math.inf

    def _take_in_flight(self) -> Report:
        if self._in_flight is None:
            raise RuntimeError("no report is in flight: call compose() first")
        report, self._in_flight = self._in_flight, None
        return report


def _edge(busy: int, last: Report) -> bool:
    """Whether the worker has become saturated or idle since the `last` report, or no longer is."""
    return (busy >= last.slots) != (last.busy >= last.slots) or (busy == 0) != (last.busy == 0)
