"""PURE: the goals for waits and worker-seconds, and which of them the simulated runs meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from tests.bench.table import Row

SOURCES = ("redis", "stepFunctions")
PEERS = ("keda", "keda-tuned", "kpa", "hpa-cpu", "oracle")
TRACES = ("steady", "onoff", "diurnal", "heavy", "cron40", "cron1000", "trickle", "short", "batch")
STARTS = (3.0, 30.0)
#: The traces with a goal of their own: see `_sizes_reached`.
GROWTH, BACKLOG = "growth", "backlog"
#: maxWorkers binds every policy on this trace: no goal for its wait against the peers.
BOUND = "cron1000"
#: Differences of waits below this count as none, in seconds: a poll of Step Functions takes 0.08 s to its task, one
#: of the peers' model 0.002 s.
SAME_SECONDS = 0.1
#: The workers of `growth` and `backlog`, and the seconds from the arrival of the many tasks until they are wanted.
GROWTH_SIZE, GROWTH_SECONDS = 200, 4.0
BACKLOG_SIZE, BACKLOG_STARTS = 64, 8.0


@dataclass(frozen=True, slots=True)
class Run:
    """One policy on one trace and seed; `policy` is the kind of source for an ActivityPool.

    `wait_from_zero` is the p99 of the tasks that met a pool without a worker, None without such a task; `wait_beside`
    is that of the others. `reached`: whole seconds from the last of the many tasks of `growth` or `backlog` to the size
    of the goal, None if that was never wanted. `above`: seconds after the first five minutes with more than 1.2 workers
    for each busy slot, and two; `above_peak`: the same for the most tasks that ran or waited at one time in the last
    minute. `turns` is how often the size turned from growing to shrinking or back, an hour.
    """

    trace: str
    start: float
    seed: int
    policy: str
    wait_p99: float
    worker_seconds: float
    ratio: float
    interrupted: int
    unfinished: int
    wait_from_zero: float | None
    wait_beside: float
    reached: float | None = None
    above: int = 0
    above_peak: int = 0
    first_poll: float = 0.0
    turns: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """One goal at one place: `value` has to be at most `limit`. None: the value was never reached."""

    goal: str
    where: str
    value: float | None
    limit: float

    @property
    def met(self) -> bool:
        """Whether the value keeps the limit."""
        return self.value is not None and self.value <= self.limit

    @property
    def text(self) -> str:
        """The place, the value and its limit."""
        value = "never" if self.value is None else f"{self.value:.2f}"
        return f"{self.where}: {value} ({self.limit:.2f})"


@dataclass(frozen=True, slots=True)
class Mean:
    """The means over the compared seeds of one policy on one trace."""

    wait_p99: float
    worker_seconds: float
    ratio: float
    wait_from_zero: float | None
    wait_beside: float
    turns: float


class Runs:
    """Runs by trace, start and policy. All policies on a trace and start are compared at the same seeds."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.all = tuple(runs)

    def seeds(self, trace: str, start: float) -> set[int]:
        """Return the seeds at which every policy ran of those that ran here at all; none if no pool did."""
        found: dict[str, set[int]] = {}
        for run in self.all:
            if (run.trace, run.start) == (trace, start):
                found.setdefault(run.policy, set()).add(run.seed)
        return set.intersection(*found.values()) if any(source in found for source in SOURCES) else set()

    def of(self, trace: str, start: float, policy: str) -> list[Run]:
        """Return the policy's runs of these seeds."""
        seeds, place = self.seeds(trace, start), (trace, start, policy)
        return [run for run in self.all if (run.trace, run.start, run.policy) == place and run.seed in seeds]

    def mean(self, trace: str, start: float, policy: str) -> Mean | None:
        """Return the means over these seeds, None without a run."""
        runs = self.of(trace, start, policy)
        if not runs:
            return None
        return Mean(
            fmean(run.wait_p99 for run in runs),
            fmean(run.worker_seconds for run in runs),
            fmean(run.ratio for run in runs),
            fmean(zero) if (zero := [run.wait_from_zero for run in runs if run.wait_from_zero is not None]) else None,
            fmean(run.wait_beside for run in runs),
            fmean(run.turns for run in runs),
        )


def judge(runs: Runs) -> list[Case]:
    """Return every case of every goal for which there are runs."""
    cases: list[Case] = []
    for trace in TRACES:
        for start in STARTS:
            peers = {peer: runs.mean(trace, start, peer) for peer in PEERS}
            ours = {source: runs.mean(trace, start, source) for source in SOURCES}
            for source, mean in ours.items():
                if mean is not None:
                    cases += _beside_peers(f"{trace}, {source}, {start:g} s", trace, start, mean, peers)
            cases += _sources(f"{trace}, {start:g} s", ours)
    cases += _batch(runs)
    cases += _steady(runs)
    cases += _sizes_reached(runs)
    ours_all = [run for run in runs.all if run.policy in SOURCES]
    if ours_all:
        cases.append(Case("no interrupted task", "all runs", float(sum(run.interrupted for run in ours_all)), 0.0))
        cases.append(Case("no unfinished task", "all runs", float(sum(run.unfinished for run in ours_all)), 0.0))
    return cases


def _beside_peers(where: str, trace: str, start: float, ours: Mean, peers: dict[str, Mean | None]) -> Iterator[Case]:
    keda, tuned, kpa = peers["keda"], peers["keda-tuned"], peers["kpa"]
    if keda is None or tuned is None or kpa is None:
        return
    if trace != BOUND:
        yield Case(
            "p99 wait beside workers: a fifth of KEDA's", where, ours.wait_beside, max(keda.wait_p99 / 5, SAME_SECONDS)
        )
        if ours.wait_from_zero is not None:
            yield Case("p99 wait from zero: a start and 15 s", where, ours.wait_from_zero, start + 15)
        best = min(tuned.wait_p99, kpa.wait_p99)
        limit = max(1.1 * best, best + SAME_SECONDS)
        yield Case("p99 wait: 1.1 times the better of tuned KEDA and KPA", where, ours.wait_p99, limit)
    yield Case("turns of the size: 120 an hour", where, ours.turns, 120.0)
    limit = (1.3 if trace == "heavy" else 1.1) * keda.worker_seconds
    yield Case("worker-seconds: 1.1 times KEDA's (heavy: 1.3)", where, ours.worker_seconds, limit)
    yield Case("worker-seconds: KPA's", where, ours.worker_seconds, kpa.worker_seconds)


def _sources(where: str, ours: dict[str, Mean | None]) -> Iterator[Case]:
    redis, functions = ours["redis"], ours["stepFunctions"]
    if redis is None or functions is None:
        return
    limit = max(1.25 * redis.wait_p99, redis.wait_p99 + SAME_SECONDS)
    yield Case("p99 wait: Step Functions 1.25 times Redis", where, functions.wait_p99, limit)
    limit = 1.25 * redis.worker_seconds
    yield Case("worker-seconds: Step Functions 1.25 times Redis", where, functions.worker_seconds, limit)


def _batch(runs: Runs) -> Iterator[Case]:
    for source in SOURCES:
        mean = runs.mean("batch", 3.0, source)
        if mean is not None:
            where = f"batch, {source}, 3 s"
            yield Case("300 tasks of 0.5 s: worker-seconds 6 times the work", where, mean.ratio, 6.0)
            yield Case("300 tasks of 0.5 s: p99 wait 8 s", where, mean.wait_p99, 8.0)


def _steady(runs: Runs) -> Iterator[Case]:
    for start in STARTS:
        for source in SOURCES:
            found, where = runs.of("steady", start, source), f"{source}, {start:g} s"
            if found:
                above, peak = (sum(run.above for run in found), sum(run.above_peak for run in found))
                yield Case("steady load: seconds above 1.2 times the most tasks in a minute, plus 2", where, peak, 0.0)
                yield Case("steady load: seconds above 1.2 times the slots busy now, plus 2", where, above, 0.0)


def _sizes_reached(runs: Runs) -> Iterator[Case]:
    for run in runs.all:
        if run.policy not in SOURCES:
            continue
        where = f"{run.policy}, {run.start:g} s, first poll {run.first_poll:g} s, seed {run.seed}"
        if run.trace == GROWTH:
            yield Case("5 busy workers and 195 more tasks: 200 wanted within 4 s", where, run.reached, GROWTH_SECONDS)
        elif run.trace == BACKLOG:
            limit = BACKLOG_STARTS * run.start
            yield Case("endless backlog: 64 workers within 8 starts of a pod", where, run.reached, limit)


def as_rows(cases: Sequence[Case]) -> list[Row]:
    """Return a row for each goal: how many of its cases are met, and every missed one with its limit in brackets."""
    rows = []
    for goal in dict.fromkeys(case.goal for case in cases):
        found = [case for case in cases if case.goal == goal]
        missed = [case.text for case in found if not case.met]
        ours = f"{len(found) - len(missed)} of {len(found)}"
        rows.append(Row(goal, ours, met=not missed, how="; ".join(missed) and f"missed: {'; '.join(missed)}"))
    return rows


def as_matrix(runs: Runs, start: float) -> list[tuple[str, ...]]:
    """Return the heading and a row for each trace: p99 wait in seconds / worker-seconds over the least possible.

    A trace on which no pool ran has no row.
    """
    policies = (*PEERS, *SOURCES)
    rows: list[tuple[str, ...]] = [("trace", *policies)]
    for trace in TRACES:
        means = [runs.mean(trace, start, policy) for policy in policies]
        if any(means):
            rows.append((trace, *("" if mean is None else f"{mean.wait_p99:.2f} / {mean.ratio:.2f}" for mean in means)))
    return rows


def as_seeds(runs: Runs) -> str:
    """Return the sentences that name the seeds of each trace and pod start, and what did not run."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for trace in (*TRACES, GROWTH, BACKLOG):
        starts: dict[tuple[int, ...], list[str]] = {}
        for start in STARTS:
            starts.setdefault(tuple(sorted(runs.seeds(trace, start))), []).append(f"{start:g} s")
        for seeds, names in starts.items():
            groups.setdefault(seeds, []).append(f"`{trace}` ({', '.join(names)})")
    missing = groups.pop((), [])
    parts = [f"{_seeds(seeds)}: {', '.join(groups[seeds])}." for seeds in sorted(groups, key=lambda one: -len(one))]
    return " ".join([*parts, *([f"Not run: {', '.join(missing)}."] if missing else [])])


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"Seed {seeds[0]}"
    return f"Seeds {', '.join(map(str, seeds[:-1]))} and {seeds[-1]}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown; the first row is its heading."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
