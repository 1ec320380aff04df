"""PURE: what a policy has cost on a trace, and how long the tasks waited."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from activity_operator.simulate.workers import Costs

HOUR_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A moment of a simulation: seconds of the trace, wanted workers, pods, busy slots, waiting tasks."""

    at: float
    wanted: int
    pods: int
    busy: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The seconds from a task's arrival to its start. `from_zero`: it met a pool in which no worker had started."""

    seconds: float
    from_zero: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """One policy on one trace. Waits are seconds from a task's arrival to its start.

    `wait_p99_from_zero` is that of the tasks that met a pool without a worker, None without such a task, and
    `wait_p99_beside_workers` that of the others.
    `ratio` is worker-seconds over the least possible: the sum of the tasks' durations over the slots of a worker.
    `reversals_per_hour` counts how often the wanted size turned from growing to shrinking or back. `writes` are those
    to the API server that change pods, replicas and leases. `unfinished` tasks were not done when the simulation ended.
    """

    policy: str
    tasks: int
    unfinished: int
    wait_p50: float
    wait_p99: float
    wait_max: float
    worker_seconds: float
    ratio: float
    reversals_per_hour: float
    starts: int
    most_workers: int
    interrupted: int
    killed: int
    writes: int
    wait_p99_from_zero: float | None = None
    wait_p99_beside_workers: float = 0.0
    samples: tuple[Sample, ...] = field(default=(), repr=False)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` of the ordered values do not exceed, 0 if there are none."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def reversals(sizes: Sequence[int]) -> int:
    """Return how often a series of sizes turned from growing to shrinking or back."""
    moves = [after - before for before, after in pairwise(sizes) if after != before]
    return sum(1 for one, other in pairwise(moves) if (one > 0) != (other > 0))


def result_of(
    policy: str, waits: Sequence[Wait], unfinished: int, costs: Costs, *, least_seconds: float, seconds: float,
    samples: Sequence[Sample],
) -> Result:  # fmt: skip
    """Return the result of a policy. `least_seconds` is the work per slot, `seconds` the length of the simulation."""
    ordered = sorted(wait.seconds for wait in waits)
    from_zero = sorted(wait.seconds for wait in waits if wait.from_zero)
    beside_workers = sorted(wait.seconds for wait in waits if not wait.from_zero)
    turns = reversals([size for _, size in costs.sizes])
    return Result(
        policy=policy,
        tasks=len(ordered),
        unfinished=unfinished,
        wait_p50=percentile(ordered, 0.5),
        wait_p99=percentile(ordered, 0.99),
        wait_max=ordered[-1] if ordered else 0.0,
        worker_seconds=costs.worker_seconds,
        ratio=costs.worker_seconds / least_seconds if least_seconds else 0.0,
        reversals_per_hour=turns * HOUR_SECONDS / seconds,
        starts=costs.starts,
        most_workers=costs.most_workers,
        interrupted=costs.interrupted,
        killed=costs.killed,
        writes=costs.writes,
        wait_p99_from_zero=percentile(from_zero, 0.99) if from_zero else None,
        wait_p99_beside_workers=percentile(beside_workers, 0.99),
        samples=tuple(samples),
    )
