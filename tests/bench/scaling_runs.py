"""The simulations of the scaling goals: which there are, how one is run, and where its result is kept.

Each result is kept in `build/scaling-goals.jsonl` under a digest of the code that it ran.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import activity_operator
from activity_operator.api.spec import PoolSpec, parse_spec
from activity_operator.simulate.results import Result, Sample
from activity_operator.simulate.run import Conditions, simulate
from activity_operator.simulate.traces import generate_trace
from tests.bench import scaling_rules as rules
from tests.bench.scaling_rules import Run, Runs
from tests.cluster.progress import say

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "scaling-goals.jsonl"
OPERATOR = Path(activity_operator.__file__).parent
MAX_WORKERS = 200
#: When the last of the many tasks of `growth` and `backlog` has arrived, in seconds from the start of the trace.
ARRIVALS = {rules.GROWTH: (121.0, rules.GROWTH_SIZE), rules.BACKLOG: (60.0, rules.BACKLOG_SIZE)}
#: How late Step Functions answers the first poll of each slot on the trace `backlog`.
FIRST_POLLS = (0.0, 20.0, 60.0)
#: The goal for a steady load holds after these seconds; its peak is that of so many samples, one a second.
STEADY_SECONDS = 300.0
PEAK_SAMPLES = 60
#: The packages that a run of the pool depends on, and the modules that a peer's run depends on.
_POOL_PACKAGES = ("api", "core", "reports", "simulate")
_PEER_MODULES = ("peers", "oracle", "workers", "tasks", "timeline", "traces", "run", "results")
_SPECS: dict[str, dict[str, object]] = {
    "redis": {"source": {"redis": {"address": "redis:6379", "flow": "f", "queue": "q"}}},
    "stepFunctions": {"activityArn": "arn:aws:states:eu-west-1:123456789012:activity:a"},
}


@dataclass(frozen=True, slots=True)
class Job:
    """One simulation."""

    trace: str
    start: float
    seed: int
    policy: str
    first_poll: float = 0.0

    @property
    def key(self) -> str:
        """The job, and a digest of the code that it runs."""
        code = _digest(self.policy in rules.SOURCES)
        return f"{self.trace} {self.start:g} {self.seed} {self.policy} {self.first_poll:g} {code}"


def jobs(traces: Sequence[str], starts: Sequence[float], seeds: Sequence[int]) -> Iterator[Job]:
    """Yield the simulations: those of the pool first."""
    for policies in (rules.SOURCES, rules.PEERS):
        for seed in seeds:
            for start in starts:
                for trace in traces:
                    if trace == rules.BACKLOG:
                        if policies is rules.SOURCES:
                            yield from (Job(trace, start, seed, "stepFunctions", first) for first in FIRST_POLLS)
                    elif trace == rules.GROWTH:
                        if policies is rules.SOURCES:
                            yield from (Job(trace, start, seed, source) for source in policies)
                    else:
                        yield from (Job(trace, start, seed, policy) for policy in policies)


def measure(job: Job) -> Run:
    """Run one simulation."""
    trace = generate_trace(job.trace, job.seed)
    ours = job.policy in rules.SOURCES
    spec = spec_of(job.policy if ours else "redis")
    conditions = Conditions(job.start, job.seed, job.first_poll)
    result = simulate("activitypool" if ours else job.policy, spec, trace, conditions)
    return run_of(job, result, trace.seconds)


def spec_of(source: str) -> PoolSpec:
    """Return the spec of a pool with nothing but its source and maxWorkers."""
    return parse_spec({**_SPECS[source], "handlerImage": "handler:1", "maxWorkers": MAX_WORKERS})


def run_of(job: Job, result: Result, seconds: float) -> Run:
    """Return what the goals need of a result; `seconds` is the length of the trace."""
    samples = [sample for sample in result.samples if sample.at <= seconds]
    reached = None
    if job.trace in ARRIVALS:
        arrival, size = ARRIVALS[job.trace]
        at = next((sample.at for sample in samples if sample.at >= arrival and sample.wanted >= size), None)
        reached = None if at is None else at - arrival
    above, above_peak = _above(samples)
    return Run(
        job.trace, job.start, job.seed, job.policy, result.wait_p99, result.worker_seconds, result.ratio,
        result.interrupted, result.unfinished, result.wait_p99_from_zero, result.wait_p99_beside_workers, reached,
        above, above_peak, job.first_poll, result.reversals_per_hour,
    )  # fmt: skip


def _above(samples: Sequence[Sample]) -> tuple[int, int]:
    """Return the seconds with too many workers for the busy slots of the moment, and for the tasks of a minute."""
    moment = minute = 0
    for number, sample in enumerate(samples):
        if sample.at >= STEADY_SECONDS:
            peak = max(one.busy + one.waiting for one in samples[max(0, number - PEAK_SAMPLES) : number + 1])
            moment += sample.wanted > 1.2 * sample.busy + 2
            minute += sample.wanted > 1.2 * peak + 2
    return moment, minute


def _digest(whole: bool) -> str:
    """Return a digest of the modules that a run of the pool (`whole`) or of a peer depends on, and of this one."""
    paths = [OPERATOR / "simulate" / f"{one}.py" for one in _PEER_MODULES]
    if whole:
        paths = [OPERATOR / "backlog" / "sentinel_polls.py"]
        paths += [path for package in _POOL_PACKAGES for path in sorted((OPERATOR / package).rglob("*.py"))]
    text = b"".join(path.read_bytes() for path in [*paths, Path(__file__)])
    return hashlib.sha256(text).hexdigest()[:12]


def run_all(wanted: Sequence[Job], processes: int) -> Runs:
    """Run what is not kept yet, in that many processes, and return all runs in the order of the jobs."""
    kept = dict(_kept())
    keys = {job: job.key for job in wanted}
    missing = [job for job in wanted if keys[job] not in kept]
    say(f"{len(wanted)} simulations, {len(wanted) - len(missing)} of them kept in {KEPT.relative_to(ROOT)}")
    KEPT.parent.mkdir(exist_ok=True)
    with ProcessPoolExecutor(processes) as pool:
        running = {pool.submit(measure, job): job for job in missing}
        for number, done in enumerate(as_completed(running), start=1):
            job, run = running[done], done.result()
            kept[keys[job]] = run
            with KEPT.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": keys[job], "run": asdict(run)}) + "\n")
            say(f"{number}/{len(missing)} {job.trace}, {job.policy}, {job.start:g} s, seed {job.seed}")
    return Runs(kept[keys[job]] for job in wanted)


def _kept() -> Iterator[tuple[str, Run]]:
    if KEPT.exists():
        for line in KEPT.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            yield entry["key"], Run(**entry["run"])
