"""PURE: the findings of a soak, the fault that caused each, and whether the run passes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.soak import account
from tests.soak.account import Attempt, Death, Evidence
from tests.soak.draw import DEATHS, DrawnFault
from tests.soak.growth import Growth

#: Seconds after a fault within which every pool's status must have been true, and an execution that was started then
#: must have succeeded.
CONVERGE_SECONDS = 60.0
#: The most writes a minute of all operators together to the API server at rest, without the election.
QUIET_WRITES = 2.0
NOBODY = "no fault"


@dataclass(slots=True)
class InjectedFault:
    """A fault that struck: from `at` to `over` in seconds, its victim, how many executions ran, seconds to converge."""

    strike: DrawnFault
    at: float
    victim: str = ""
    in_flight: int = 0
    over: float = 0.0
    converged: float | None = None
    #: What it waits for, or waited for last, as text.
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """All that is judged. Times are in seconds of one clock."""

    struck: Sequence[InjectedFault]
    statuses: Mapping[str, int]
    attempts: Sequence[Attempt]
    seen: Evidence
    #: Pods with tasks that were deleted without permission, and handlers that were cancelled: (time, text).
    interrupted: Sequence[tuple[float, str]]
    growth: Sequence[Growth]
    quiet_writes_a_minute: float
    quiet_writes: Mapping[str, int]
    #: Errors of the run itself, and pools that did not come to rest at its end.
    troubles: Sequence[str] = ()
    #: Whether a run of this length must have processes that lived long enough to be judged.
    must_judge_growth: bool = True


@dataclass(slots=True)
class Row:
    """The counts for one kind of fault."""

    times: int = 0
    in_flight: int = 0
    lost: int = 0
    interrupted: int = 0
    duplicates: int = 0
    retried: int = 0
    slowest: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The rows by fault, and every failure as text; the run passes if there is none."""

    rows: Mapping[str, Row]
    wrong: Sequence[str] = field(default_factory=tuple)


def operators_deaths(
    struck: Sequence[InjectedFault], ends: Mapping[str, Sequence[float]], patience: float
) -> list[Death]:
    """Return the ends of operators that a fault caused; an operator that ended by itself is a failure.

    `ends` are seconds, by replica; `patience` is how long a fault may wait for a call to strike.
    """
    deaths = []
    for replica, when in ends.items():
        for at in when:
            guilty = [
                one for one in struck
                if one.strike.kind in DEATHS and one.victim == replica and -1.0 <= at - one.at <= patience
            ]  # fmt: skip
            if guilty:
                deaths.append(Death(replica, at, guilty[-1].strike.kind))
    return deaths


def judge(found: Findings) -> Verdict:
    """Return the verdict on the findings."""
    lost, excused = account.timed_out(found.attempts, found.seen)
    twice = account.duplicates(found.seen)
    rows: dict[str, Row] = {}
    for one in found.struck:
        row = rows.setdefault(one.strike.kind, Row())
        row.times += 1
        row.in_flight += one.in_flight
        row.slowest = max(row.slowest, one.converged if one.converged is not None else float("inf"))
    for attempt in lost:
        _row(rows, found.struck, attempt.started_at).lost += 1
    for at, _ in found.interrupted:
        _row(rows, found.struck, at).interrupted += 1
    for begun in twice:
        _row(rows, found.struck, begun.at).duplicates += 1
    for fault, times in Counter(excused.values()).items():
        rows.setdefault(fault, Row()).retried += times
    wrong = [f"task {one.lease[:8]} of {one.by} was in safe hands, and timed out" for one in lost]
    wrong += [words for _, words in found.interrupted]
    wrong += [f"task {one.lease[:8]} was run again by {one.holder}" for one in twice]
    return Verdict(rows, (*wrong, *_unfinished(found), *_slow(found), *_grown(found), *found.troubles))


def _row(rows: dict[str, Row], struck: Sequence[InjectedFault], at: float) -> Row:
    """Return the row of the last fault before a moment."""
    before = [one.strike.kind for one in struck if one.at <= at]
    return rows.setdefault(before[-1] if before else NOBODY, Row())


def _unfinished(found: Findings) -> list[str]:
    return [
        f"{count} executions ended {status}" for status, count in found.statuses.items() if status != "SUCCEEDED"
    ]  # fmt: skip


def _slow(found: Findings) -> list[str]:
    late = [one for one in found.struck if one.converged is None or one.converged > CONVERGE_SECONDS]
    return [
        f"{one.strike} of {one.victim}: "
        + ("not converged" if one.converged is None else f"converged after {one.converged:.0f} s")
        + f" ({one.missing})"
        for one in late
    ]


def _grown(found: Findings) -> list[str]:
    wrong = [f"{line.replica} ({line.pid}): {line.wrong}" for line in found.growth if line.wrong]
    if not found.growth and found.must_judge_growth:
        wrong.append("no operator's process lived long enough to say whether it grows")
    if found.quiet_writes_a_minute > QUIET_WRITES:
        writes = ", ".join(f"{count} x {name}" for name, count in found.quiet_writes.items())
        wrong.append(f"{found.quiet_writes_a_minute:.1f} writes a minute at rest (limit {QUIET_WRITES:g}): {writes}")
    return wrong
