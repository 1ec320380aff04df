"""PURE: which fault strikes when. A seeded generator draws them, so that a seed fixes the order of a run's faults."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tests.faults.forked_election_operators import SHORT_SECONDS
from tests.faults.plan import Kind


class FaultKind(StrEnum):
    """The faults of a run; the rows of its table."""

    LEADER_KILLED = "leader killed"
    STANDBY_KILLED = "standby killed"
    CRASH_AT_A_CALL = "crash at a call"
    """The leader is killed right before or after the server acts on its next write or call to the task service."""
    LEADER_FROZEN = "leader frozen"
    """SIGSTOP for longer than its Lease lasts, then SIGCONT."""
    STANDBY_FROZEN = "standby frozen"
    CALLS_REFUSED = "calls refused"
    CALLS_HUNG = "calls hung"
    ANSWERS_LOST = "answers cut or lost"
    EVENTS_LOST = "events lost"
    EVENTS_TWICE = "events twice"
    EVENTS_LATE = "events late"
    EVENTS_TORN = "events torn"
    WATCH_GONE = "watch gone (410)"
    """No watch of a kind gets an event for a while; the next watch gets 410 Gone."""
    AWS_THROTTLED = "AWS throttled"
    """Every call of operators and workers, for a while."""
    AWS_FAILED = "AWS failed"
    AWS_ANSWERS_LOST = "AWS answers lost"
    """The service acts on an operator's call; the answer does not arrive."""
    WORKERS_ANSWERS_LOST = "workers' AWS answers lost"
    WORKER_KILLED = "worker killed"
    """SIGKILL; the container restarts in the same pod."""
    POD_DELETED = "pod deleted"
    """A test deletes the pod gracefully."""
    POD_REMOVED = "pod removed by force"
    """A test deletes the pod without a grace period: its worker ends as by SIGKILL."""
    POOL_CHANGED = "pool changed and back"
    REPORTS_CUT = "reports cut"
    """No worker reaches an operator for a while."""
    API_DOWN = "API down"
    """No operator reaches the API server for a while, longer than a Lease or not."""
    LOOP_BLOCKED = "loop blocked"
    """The leader's main loop, for less than the renew deadline."""
    CLOCK_STEPPED = "clock stepped"
    """A replica's time of day is an hour ahead or behind for a while; monotonic clocks are not changed."""
    TOKEN_ROTATED = "token rotated"
    """The leader's token is refused from a call on, and its watches end; a second later its file has the next one."""
    HOSTILE_REPORTS = "hostile reports"
    """Forged, foreign, invalid and incomplete reports to the leader's own port."""
    HOSTILE_POOLS = "hostile pools"
    """Pools generated from the CRD's schema and hostile texts; they are deleted again."""


#: Faults that replace an operator's process.
DEATHS = frozenset({FaultKind.LEADER_KILLED, FaultKind.STANDBY_KILLED, FaultKind.CRASH_AT_A_CALL})
#: Faults that strike only once: a process is killed once, and a token is refused until the next one is there.
ONCE = DEATHS | {FaultKind.TOKEN_ROTATED}
#: Faults that kill the holder of a task, so that the state machine's Retry must repeat it.
HOLDERS_KILLED = frozenset({FaultKind.WORKER_KILLED, FaultKind.POD_REMOVED})
#: How often each is drawn in proportion. Faults that end a process are rarer, so that processes live long enough to be
#: measured.
WEIGHTS: Mapping[FaultKind, float] = dict.fromkeys(FaultKind, 2.0) | dict.fromkeys(DEATHS, 1.0)
#: The ways in which a call or an event is broken.
WAYS: Mapping[FaultKind, tuple[Kind, ...]] = {
    FaultKind.CRASH_AT_A_CALL: (Kind.CRASH_BEFORE, Kind.CRASH_AFTER),
    FaultKind.CALLS_REFUSED: (Kind.UNAUTHORIZED, Kind.FORBIDDEN, Kind.CONFLICT, Kind.GONE, Kind.THROTTLED, Kind.FAILED),
    FaultKind.CALLS_HUNG: (Kind.HANG, Kind.HALF_OPEN),
    FaultKind.ANSWERS_LOST: (Kind.CUT, Kind.LOST_ANSWER, Kind.LATE_ANSWER),
    FaultKind.TOKEN_ROTATED: (Kind.ROTATED,),
    FaultKind.EVENTS_LOST: (Kind.EVENT_LOST,),
    FaultKind.EVENTS_TWICE: (Kind.EVENT_TWICE,),
    FaultKind.EVENTS_LATE: (Kind.EVENT_LATE,),
    FaultKind.EVENTS_TORN: (Kind.EVENT_TORN, Kind.STREAM_FAILED),
    FaultKind.AWS_ANSWERS_LOST: (Kind.CUT, Kind.LOST_ANSWER),
    FaultKind.WORKERS_ANSWERS_LOST: (Kind.CUT, Kind.LOST_ANSWER),
}
#: Seconds for which a lasting fault lasts. A frozen leader must outlast its Lease of 4 s and the 5 s of a write that it
#: was about to send. With the shipped settings the first includes the second: a Lease lasts 5 s longer than its holder
#: leads.
LENGTHS: Mapping[FaultKind, tuple[float, float]] = {
    FaultKind.LEADER_FROZEN: (6.0, 10.0),
    FaultKind.STANDBY_FROZEN: (3.0, 9.0),
    FaultKind.WATCH_GONE: (1.0, 6.0),
    FaultKind.AWS_THROTTLED: (1.0, 6.0),
    FaultKind.AWS_FAILED: (1.0, 6.0),
    FaultKind.POOL_CHANGED: (3.0, 12.0),
    FaultKind.REPORTS_CUT: (5.0, 20.0),
    FaultKind.API_DOWN: (1.0, 8.0),
    FaultKind.LOOP_BLOCKED: (SHORT_SECONDS, SHORT_SECONDS),
    FaultKind.CLOCK_STEPPED: (2.0, 10.0),
    FaultKind.HOSTILE_REPORTS: (2.0, 8.0),
    FaultKind.HOSTILE_POOLS: (2.0, 8.0),
}
#: Seconds from the end of a fault to the next: some strike while an operator still recovers from the last.
GAP_SECONDS = (1.0, 8.0)
#: How many calls or events a fault strikes.
MOST_STRUCK = 4


@dataclass(frozen=True, slots=True)
class DrawnFault:
    """One fault.

    `way` and `times` are for faults that strike calls or events, `seconds` for those that last. `luck` (0 to 1) chooses
    among the possible victims. `gap` is the seconds before the fault.
    """

    kind: FaultKind
    gap: float
    seconds: float
    times: int
    luck: float
    way: Kind | None = None

    def __str__(self) -> str:
        length = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.kind}{f' ({self.way} x {self.times})' if self.way else ''}{length}"


def strikes(generator: random.Random) -> Iterator[DrawnFault]:
    """Yield faults for ever. Each kind comes once first, in random order; after that they are drawn at random."""
    first = list(FaultKind)
    generator.shuffle(first)
    while True:
        what = first.pop() if first else generator.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        ways = WAYS.get(what)
        yield DrawnFault(
            what,
            gap=generator.uniform(*GAP_SECONDS),
            seconds=generator.uniform(*LENGTHS.get(what, (0.0, 0.0))),
            times=1 if what in ONCE else generator.randint(1, MOST_STRUCK),
            luck=generator.random(),
            way=generator.choice(ways) if ways else None,
        )
