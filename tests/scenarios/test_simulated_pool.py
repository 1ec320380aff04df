"""The simulated pool: the operator's own decisions, without a lost or repeated task."""

import random
from collections.abc import Iterable

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.simulate.operator_pool import OperatorPool
from activity_operator.simulate.run import START, Conditions, simulate
from activity_operator.simulate.tasks import Task
from activity_operator.simulate.timeline import Timeline
from activity_operator.simulate.traces import generate_trace

ARN = "arn:aws:states:eu-west-1:123456789012:activity:a"
SOURCES: dict[str, dict[str, object]] = {
    "stepFunctions": {"activityArn": ARN},
    "redis": {"source": {"redis": {"address": "redis:6379", "flow": "f", "queue": "q"}}},
    "taskStore": {"source": {"taskStore": {"url": "postgresql://db/tasks", "tasks": ["t"]}}},
}


def spec_of(source: str, **more: object) -> PoolSpec:
    return PoolSpec.model_validate({**SOURCES[source], "handlerImage": "i", "maxWorkers": 50, **more})


def quick(window: int = 0, zero_after: int = 5) -> dict[str, object]:
    return {"scaleDown": {"stabilizationWindowSeconds": window, "zeroAfterSeconds": zero_after}}


def run_tasks(spec: PoolSpec, tasks: Iterable[Task], seconds: float, seed: int = 1) -> OperatorPool:
    timeline = Timeline(START)
    pool = OperatorPool(timeline, random.Random(seed), spec, start_seconds=3.0)
    pool.begin()
    for task in tasks:
        timeline.at(task.arrived, lambda task=task: pool.arrive(task))  # type: ignore[misc]
    timeline.run_until(START + seconds)
    return pool


@pytest.mark.parametrize("source", SOURCES)
def test_one_task_at_zero_starts_one_pod_and_the_pool_returns_to_zero(source: str) -> None:
    task = Task(START + 10, 20.0)
    pool = run_tasks(spec_of(source, scaling=quick()), [task], 300)

    assert task.started is not None
    assert 1.0 < task.started - task.arrived < 10.0
    assert task.ended == pytest.approx(task.started + 20.0)
    assert pool.done == 1
    assert pool.costs.interrupted == 0
    assert not pool.workers
    assert pool.wanted == 0


def test_counted_source_starts_one_pod_for_each_of_forty_tasks() -> None:
    tasks = [Task(START + 10, 20.0) for _ in range(40)]
    pool = run_tasks(spec_of("redis"), tasks, 100)

    assert pool.costs.starts == pool.costs.most_workers == 40
    assert pool.costs.sizes[1][0] - (START + 10) < 0.5
    assert pool.costs.sizes[1][1] == 40


def test_worker_of_step_functions_drains_only_when_its_poll_has_ended() -> None:
    """The worker polls from 59 s after the operator's last poll on, so the poll of a minute is open at 65 s."""
    costs = {}
    for source in ("redis", "stepFunctions"):
        pool = run_tasks(spec_of(source, scaling=quick(zero_after=65)), [Task(START + 10, 20.0)], 300)
        costs[source] = pool.costs.worker_seconds

    assert costs["redis"] < 20 + 65 + 20
    assert costs["stepFunctions"] > costs["redis"] + 20


def test_worker_that_stands_by_leaves_without_a_poll() -> None:
    pool = run_tasks(spec_of("stepFunctions", scaling=quick()), [Task(START + 10, 20.0)], 300)

    assert pool.costs.worker_seconds < 20 + 5 + 20


@pytest.mark.parametrize("seed", range(5))
def test_task_of_the_operators_poll_goes_to_the_worker_that_is_free(seed: int) -> None:
    """Tasks of 20 s, one every 30 s: the poll that the operator opened during one task often takes the next one."""
    tasks = [Task(START + at, 20.0) for at in range(10, 600, 30)]
    pool = run_tasks(spec_of("stepFunctions"), tasks, 640, seed)
    waits = [task.started - task.arrived for task in tasks[1:] if task.started is not None]

    assert (len(waits), pool.costs.starts) == (19, 1)
    assert max(waits) < 2.0


def test_task_that_a_draining_worker_gets_by_its_open_poll_is_finished() -> None:
    first = Task(START + 10, 5.0)
    late = [Task(START + at, 30.0) for at in range(30, 90, 10)]
    pool = run_tasks(spec_of("stepFunctions", scaling=quick()), [first, *late], 400)

    assert pool.done == 7
    assert pool.costs.interrupted == 0


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("slots", [1, 4])
def test_no_task_is_lost_run_twice_or_interrupted(source: str, slots: int) -> None:
    spec = spec_of(source, slotsPerWorker=slots, scaling=quick(window=10, zero_after=20))
    trace = generate_trace("onoff", seed=slots, seconds=240)
    tasks = [Task(START + task.at, task.seconds) for task in trace.tasks]
    pool = run_tasks(spec, tasks, 700)

    assert pool.done == len(tasks)
    assert pool.costs.interrupted == 0
    for task in tasks:
        assert task.started is not None
        assert task.started >= task.arrived
        assert task.ended == pytest.approx(task.started + task.seconds)
    assert not pool.held
    assert (pool.offered, pool.claimed) == (0, 0)
    assert pool.costs.most_workers <= spec.max_workers


def test_worker_never_runs_more_tasks_than_it_has_slots() -> None:
    spec = spec_of("stepFunctions", slotsPerWorker=3)
    result = simulate("activitypool", spec, generate_trace("steady", 1, seconds=200), Conditions())

    assert max(sample.busy - 3 * sample.pods for sample in result.samples) <= 0


def test_min_and_max_workers_of_the_manifest_hold() -> None:
    spec = spec_of("redis", minWorkers=2, maxWorkers=5, scaling=quick())
    pool = run_tasks(spec, [Task(START + 60, 20.0) for _ in range(40)], 400)

    assert pool.costs.most_workers == 5
    assert pool.done == 40
    sizes = [size for _, size in pool.costs.sizes]
    assert sizes[:2] == [2, 5]
    assert sizes[-1] == 2


def test_late_first_poll_delays_the_first_task_of_a_slot_and_no_other() -> None:
    spec = spec_of("stepFunctions", minWorkers=1, maxWorkers=1, activation={"mode": "None"})
    pool = OperatorPool(Timeline(START), random.Random(1), spec, start_seconds=3.0, first_poll_seconds=20.0)
    pool.begin()
    first, second = Task(START, 5.0), Task(START, 5.0)
    for task in (first, second):
        pool.arrive(task)
    pool.timeline.run_until(START + 60)

    assert first.started is not None
    assert second.started is not None
    assert first.ended is not None
    assert 20.0 < first.started - START < 30.0
    assert second.started - first.ended < 0.1


def test_same_seed_gives_the_same_result_and_another_seed_another() -> None:
    spec, trace = spec_of("stepFunctions"), generate_trace("onoff", 1, seconds=90)

    first = simulate("activitypool", spec, trace, Conditions(seed=1))

    assert first == simulate("activitypool", spec, trace, Conditions(seed=1))
    assert first != simulate("activitypool", spec, trace, Conditions(seed=2))


def test_slower_pods_make_tasks_at_zero_wait_longer() -> None:
    trace = generate_trace("trickle", 1, seconds=1800)
    waits = [
        simulate("activitypool", spec_of("redis"), trace, Conditions(start_seconds=seconds)).wait_max
        for seconds in (3.0, 30.0)
    ]

    assert waits[0] < 10 < waits[1]


def test_workers_that_stand_by_leave_without_the_minute_of_a_poll() -> None:
    tasks = [Task(START + 10, 10.0 + 2.0 * number) for number in range(10)]
    pool = run_tasks(spec_of("stepFunctions", scaling=quick(zero_after=300)), tasks, 50)

    assert pool.done == 10
    assert len(pool.workers) <= 4
    assert pool.costs.interrupted == 0
