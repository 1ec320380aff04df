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
class Result:
    """One policy on one trace. Waits are seconds from a task's arrival to its start.

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
    policy: str, waits: Sequence[float], unfinished: int, costs: Costs, *, least_seconds: float, seconds: float,
    samples: Sequence[Sample],
) -> Result:  # fmt: skip
    """Return the result of a policy. `least_seconds` is the work per slot, `seconds` the length of the simulation."""
    ordered = sorted(waits)
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
        samples=tuple(samples),
    )
