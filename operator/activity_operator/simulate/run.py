"""PURE: runs a trace with each policy in virtual time."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from activity_operator.api.spec import PoolSpec
from activity_operator.simulate.errors import SimulationError
from activity_operator.simulate.operator_pool import OperatorPool
from activity_operator.simulate.oracle import oracle_worker_seconds
from activity_operator.simulate.peers import PEERS, Bounds
from activity_operator.simulate.results import Result, Sample, Wait, result_of
from activity_operator.simulate.tasks import Task
from activity_operator.simulate.timeline import Timeline
from activity_operator.simulate.traces import Trace
from activity_operator.simulate.workers import Costs, WorkerPool

#: The time at which a simulation begins. The core's facts use 0 for "never".
START = 1_000_000.0
#: Seconds after the end of the trace for which unfinished tasks may still run.
LONGEST_TAIL_SECONDS = 7200.0
#: Seconds between two samples, and between two calls of `progress`.
SAMPLE_SECONDS = 1.0
#: The policies in the order of the table.
POLICIES = ("activitypool", *(peer.name for peer in PEERS), "oracle")

#: Gets the share of the simulation that is done, from 0 to 1.
Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a run: the median seconds of a pod's start, and the seed of all random numbers.

    `first_poll_seconds`: how late Step Functions answers the first poll of each of the pool's slots.
    """

    start_seconds: float = 3.0
    seed: int = 1
    first_poll_seconds: float = 0.0


def check_spec(spec: PoolSpec) -> None:
    """Raise SimulationError if the simulator does not model a field that changes sizes."""
    if spec.activation.mode == "CloudWatch":
        raise SimulationError("spec.activation.mode CloudWatch is not simulated; use Sentinel for the simulation")
    if spec.scaling.prometheus is not None:
        raise SimulationError("spec.scaling.prometheus is not simulated: a trace has no query; leave the field out")
    if spec.scaling.schedules:
        raise SimulationError("spec.scaling.schedules is not simulated: a trace has no date; set minWorkers instead")
    if spec.scaling.mode == "Recommend":
        raise SimulationError("spec.scaling.mode Recommend starts no worker; use Auto for the simulation")


def simulate(
    policy: str, spec: PoolSpec, trace: Trace, conditions: Conditions, progress: Progress = lambda _: None
) -> Result:
    """Return the result of one policy. The same arguments give the same result.

    Raises SimulationError for an unknown policy, or a spec that cannot be simulated.
    """
    check_spec(spec)
    if policy == "oracle":
        return _oracle(spec, trace, conditions)
    timeline = Timeline(START)
    pool = _pool(policy, spec, timeline, conditions)
    tasks = [Task(START + task.at, task.seconds) for task in trace.tasks]
    samples: list[Sample] = []

    def sample() -> None:
        samples.append(
            Sample(round(timeline.now - START, 3), pool.wanted, len(pool.workers), pool.busy(), pool.waiting)
        )

    timeline.every(SAMPLE_SECONDS, sample)
    _feed(timeline, pool, tasks)
    pool.begin()
    _run(timeline, pool, len(tasks), trace.seconds, progress)
    pool.close()
    # A task that never started has waited until the end at least.
    waits = [
        Wait((timeline.now if task.started is None else task.started) - task.arrived, task.from_zero) for task in tasks
    ]
    least = trace.work_seconds / spec.slots_per_worker
    return result_of(
        policy, waits, len(tasks) - pool.done, pool.costs,
        least_seconds=least, seconds=timeline.now - START, samples=samples,
    )  # fmt: skip


def _pool(policy: str, spec: PoolSpec, timeline: Timeline, conditions: Conditions) -> WorkerPool:
    random_source = random.Random(f"{policy}/{conditions.seed}")  # noqa: S311 - a model, no secret
    if policy == OperatorPool.name:
        return OperatorPool(
            timeline,
            random_source,
            spec,
            start_seconds=conditions.start_seconds,
            first_poll_seconds=conditions.first_poll_seconds,
        )
    bounds = Bounds(spec.min_workers, spec.max_workers, spec.slots_per_worker, conditions.start_seconds)
    for peer in PEERS:
        if peer.name == policy:
            return peer(timeline, random_source, bounds)
    raise SimulationError(f"policy {policy!r} is unknown; use {', '.join(POLICIES)}")


def _feed(timeline: Timeline, pool: WorkerPool, tasks: Sequence[Task]) -> None:
    """Let the tasks arrive one after another, so that the timeline holds one arrival at a time."""
    coming = iter(tasks)

    def arrive(task: Task) -> None:
        pool.arrive(task)
        plan()

    def plan() -> None:
        task = next(coming, None)
        if task is not None:
            timeline.at(task.arrived, lambda: arrive(task))

    plan()


def _run(timeline: Timeline, pool: WorkerPool, tasks: int, seconds: float, progress: Progress) -> None:
    """Run the whole trace, and on until all tasks are done."""
    step = max(SAMPLE_SECONDS, seconds / 200)
    end = START + seconds
    while timeline.now < end:
        timeline.run_until(min(end, timeline.now + step))
        progress((timeline.now - START) / seconds)
    while pool.done < tasks and timeline.now < end + LONGEST_TAIL_SECONDS:
        timeline.run_until(timeline.now + SAMPLE_SECONDS)


def _oracle(spec: PoolSpec, trace: Trace, conditions: Conditions) -> Result:
    used, starts = oracle_worker_seconds(trace, spec.slots_per_worker, conditions.start_seconds)
    costs = Costs(worker_seconds=used, starts=starts)
    least = trace.work_seconds / spec.slots_per_worker
    waits = [Wait(0.0)] * len(trace.tasks)
    return result_of("oracle", waits, 0, costs, least_seconds=least, seconds=trace.seconds, samples=())
