"""Goals that the growth rules meet, in virtual time and with fixed seeds. `tests.bench.scaling_goals` has all goals."""

import random

import pytest

from activity_operator.api.spec import PoolSpec, parse_spec
from activity_operator.simulate.operator_pool import OperatorPool
from activity_operator.simulate.results import Sample
from activity_operator.simulate.run import START, Conditions, simulate
from activity_operator.simulate.tasks import Task
from activity_operator.simulate.timeline import Timeline
from activity_operator.simulate.traces import generate_trace
from tests.unit.activity_operator.core.load import load_of

SOURCES: dict[str, dict[str, object]] = {
    "redis": {"source": {"redis": {"address": "redis:6379", "flow": "f", "queue": "q"}}},
    "stepFunctions": {"activityArn": "arn:aws:states:eu-west-1:123456789012:activity:a"},
}
#: When the many tasks arrive, in seconds.
MANY_AT = 60.0


def spec_of(source: str, most: int = 200) -> PoolSpec:
    return parse_spec({**SOURCES[source], "handlerImage": "i", "maxWorkers": most})


def reached_after(
    spec: PoolSpec, few: int, many: list[Task], size: int, *, start: float, until: float, first_poll: float = 0.0
) -> float | None:
    """Run `few` tasks that do not end, then the many; return the seconds from these to the size, None if later."""
    timeline = Timeline(START)
    pool = OperatorPool(timeline, random.Random(1), spec, start_seconds=start, first_poll_seconds=first_poll)
    pool.begin()
    for task in (*(Task(START, 1e6) for _ in range(few)), *many):
        timeline.at(task.arrived, lambda task=task: pool.arrive(task))  # type: ignore[misc]
    timeline.run_until(START + MANY_AT)
    assert (pool.wanted, pool.busy()) == (few, few)
    while pool.wanted < size and timeline.now < START + MANY_AT + until:
        timeline.run_until(timeline.now + 0.25)
    return pool.costs.sizes[-1][0] - START - MANY_AT if pool.wanted >= size else None


@pytest.mark.parametrize(
    ("source", "start", "seconds"),
    [("redis", 3.0, 1.25), ("redis", 30.0, 1.25), ("stepFunctions", 3.0, 3.0), ("stepFunctions", 30.0, 3.0)],
)
def test_195_tasks_beside_five_busy_workers_are_counted_in_seconds(source: str, start: float, seconds: float) -> None:
    chance = random.Random(1)
    many = [Task(START + MANY_AT + chance.random(), 60.0) for _ in range(195)]

    assert reached_after(spec_of(source), 5, many, 200, start=start, until=seconds) is not None


@pytest.mark.parametrize("start", [3.0, 30.0])
@pytest.mark.parametrize("first_poll", [0.0, 20.0, 60.0])
def test_endless_backlog_gets_64_workers_within_eight_starts(start: float, first_poll: float) -> None:
    many = [Task(START + MANY_AT, 5.0) for _ in range(8000)]
    spec = spec_of("stepFunctions", most=64)

    assert reached_after(spec, 1, many, 64, start=start, until=8 * start, first_poll=first_poll) is not None


@pytest.mark.parametrize("source", SOURCES)
def test_steady_load_has_no_more_workers_than_its_peaks_need(source: str) -> None:
    trace = generate_trace("steady", 1, seconds=240)
    samples = simulate("activitypool", spec_of(source), trace, Conditions()).samples
    late = [sample for sample in samples if 120 <= sample.at < 240]

    assert [sample for sample in late if sample.wanted > 1.2 * busiest(samples, sample.at) + 2] == []


def busiest(samples: tuple[Sample, ...], at: float) -> int:
    """Return the most slots that were busy at one time in the minute before."""
    return max(sample.busy for sample in samples if at - 60 <= sample.at <= at)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("trace", ["cron40", "batch"])
def test_default_windows_interrupt_no_task(source: str, trace: str) -> None:
    result = simulate("activitypool", spec_of(source), generate_trace(trace, 2, seconds=100), Conditions())

    assert (result.interrupted, result.unfinished) == (0, 0)


def test_steady_load_keeps_a_steady_size() -> None:
    """One task of 40 s arrives every 2 s: 20 run at a time."""
    load = load_of("sentinel", maxWorkers=200)
    load.seconds = 40.0
    load.run(1800, lambda at: int(at % 2 == 0))

    assert max(load.sizes[300:]) <= 1.2 * 20 + 2
    assert load.harness.truth.taken == []
