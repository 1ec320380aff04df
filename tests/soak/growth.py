"""PURE: which processes have grown.

A process is judged by its samples from the moment at which it has led for `warm_up` seconds in sum. A process that
never led that long is judged from `warm_up` seconds after its start until it first led. Before that an interpreter
fills its caches and its allocator's arenas, and a process that leads for ten seconds now and then grows by a step each
time.

Growth is the Theil-Sen slope of the samples. It is wrong if it exceeds two limits: a rate, and an amount over the
judged time. Below the amount the rate is noise (arenas come in 1 MB, a burst of ten pods is ten connections).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from tests.soak.slope import Point, percentile, slope

#: Seconds of a process that are not judged, and the least seconds that must remain, in a run of ten minutes or more.
WARM_UP_SECONDS = 120.0
LEAST_SECONDS = 150.0
#: The same in a short run, which finds only leaks that are a multiple of the limits.
SHORT_WARM_UP_SECONDS = 40.0
SHORT_LEAST_SECONDS = 50.0
#: 95 of 100 beats of the loop must be at most this late, in seconds. Time in which the thread waited for a processor is
#: the machine's other work and does not count.
LAG_SECONDS = 0.5
#: With fewer beats, the 95th percentile would be a single beat, which depends on one moment.
LEAST_BEATS = 40


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a process. `rss` is in KB, `lag` in seconds; None where the process gave no value."""

    at: float
    replica: str
    pid: int
    rss: float
    files: float
    lag: float | None
    queue: float | None
    leads: bool
    #: Seconds since its start that the main loop's thread had a processor, and that it waited for one.
    ran: float = 0.0
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class GrowthLimit:
    """The limits of a measure: `a_minute` and `amount` in units of the samples, shown in `unit` after `divide`."""

    a_minute: float
    amount: float
    unit: str
    divide: float = 1.0


LIMITS: Mapping[str, GrowthLimit] = {
    "rss": GrowthLimit(400.0, 3072.0, "MB", 1024.0),
    "files": GrowthLimit(1.0, 12.0, ""),
    "lag": GrowthLimit(0.02, 0.1, "s"),
    "queue": GrowthLimit(0.2, 2.0, ""),
}


@dataclass(frozen=True, slots=True)
class Growth:
    """One process and one measure: first and last decile, growth a minute, seconds judged, and what is wrong."""

    replica: str
    pid: int
    measure: str
    low: float
    high: float
    a_minute: float
    seconds: float
    wrong: str = ""


def lives(samples: Iterable[Sample]) -> list[list[Sample]]:
    """Return the samples of each process."""
    found: dict[tuple[str, int], list[Sample]] = {}
    for one in samples:
        found.setdefault((one.replica, one.pid), []).append(one)
    return list(found.values())


def lines(samples: Iterable[Sample], warm_up: float, least: float) -> list[Growth]:
    """Return a line for each process that lived long enough and each measure."""
    found = []
    for life in lives(samples):
        judged = _warm(_on_a_processor(life), warm_up)
        if judged and judged[-1].at - judged[0].at >= least:
            found += [_line(measure, judged) for measure in LIMITS]
    return found


def _on_a_processor(life: Sequence[Sample]) -> list[Sample]:
    """Return the samples with the share of each lag in which the thread ran, and did not wait for a processor."""
    found = list(life[:1])
    for before, one in pairwise(life):
        ran, waited = one.ran - before.ran, one.waited - before.waited
        share = ran / (ran + waited) if ran + waited > 0.0 else 1.0
        found.append(one if one.lag is None else replace(one, lag=one.lag * share))
    return found


def _warm(life: Sequence[Sample], warm_up: float) -> list[Sample]:
    """Return the samples of a process after its warm-up."""
    led = 0.0
    for number, (before, one) in enumerate(pairwise(life), 1):
        led += one.at - before.at if before.leads else 0.0
        if led >= warm_up:
            return list(life[number:])
    standby = takewhile(lambda one: not one.leads, life)
    return [one for one in standby if one.at >= life[0].at + warm_up]


def _line(measure: str, judged: Sequence[Sample]) -> Growth:
    """Judge a measure. A leader has more connections than a standby, so only samples of the same role are compared."""
    points: dict[bool, list[Point]] = {True: [], False: []}
    for one in judged:
        if (value := getattr(one, measure)) is not None:
            points[one.leads].append((one.at, value))
    rate, seconds = slope(*points.values()), judged[-1].at - judged[0].at
    values = [value for series in points.values() for _, value in series]
    low, high = percentile(values, 0.1), percentile(values, 0.95)
    wrong = _late(values, high) if measure == "lag" else ""
    wrong = wrong or _grown(measure, rate, seconds, low, high)
    return Growth(judged[0].replica, judged[0].pid, measure, low, high, rate * 60.0, seconds, wrong)


def _late(beats: Sequence[float], high: float) -> str:
    if len(beats) < LEAST_BEATS or high <= LAG_SECONDS:
        return ""
    return f"one beat of 20 came later than {LAG_SECONDS:g} s: {high:.2f} s"


def _grown(measure: str, rate: float, seconds: float, low: float, high: float) -> str:
    """Return what is wrong, or "". A steady growth spreads as far as it grew; a mere fluctuation spreads further."""
    limit = LIMITS[measure]
    if rate * 60.0 <= limit.a_minute or rate * seconds <= max(limit.amount, (high - low) / 2.0):
        return ""
    grown = rate * seconds / limit.divide
    return (
        f"{measure} grew by {grown:.1f} {limit.unit} in {seconds:.0f} s, {rate * 60.0 / limit.divide:.2f} a minute "
        f"(limit {limit.a_minute / limit.divide:.2f} a minute and {limit.amount / limit.divide:.1f})"
    )
