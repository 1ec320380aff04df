"""The backlog that counts of scheduled and started tasks imply, and when they imply none."""

from typing import Any

import pytest

from activity_operator.core import backlog, backlog_estimate
from activity_operator.core.demand import task_demand
from activity_operator.core.observation import (
    ActivityMetrics,
    MetricPeriod,
    Observation,
    PoolFacts,
    SourceFacts,
    WorkerFacts,
)
from activity_operator.core.saturation import Saturation
from activity_operator.core.situation import situation_of
from activity_worker.contract import PollFault, PollTrouble
from tests.unit.activity_operator.core.builders import NOW, busy, observed, pending, pool, worker

SPEC = pool(activation={"mode": "CloudWatch"})
LONG_AGO = 0.0


def minutes(*pairs: tuple[int, int], end: float = NOW) -> tuple[MetricPeriod, ...]:
    """Return flows of (scheduled, started) for the minutes before `end`; the last pair is the last minute."""
    first = int(end) - 60 * len(pairs)
    return tuple(MetricPeriod(first + 60 * number, 60, *pair) for number, pair in enumerate(pairs))


def counted(*pairs: tuple[int, int], age: float = 5.0) -> SourceFacts:
    return SourceFacts(metrics=ActivityMetrics(minutes(*pairs), NOW - age))


def backlog_of(observation: Observation, emptied_at: float = LONG_AGO) -> backlog.Backlog:
    return backlog.known_backlog(situation_of(SPEC, observation), emptied_at)


@pytest.mark.parametrize(
    ("pairs", "tasks"),
    [
        ([], 0),
        ([(3, 0)], 3),
        ([(3, 0), (0, 0), (2, 1)], 4),
        ([(3, 3)], 0),
        ([(3, 0), (0, 3)], 0),
        ([(0, 4), (3, 0)], 3),
        ([(5, 0), (0, 7), (1, 0)], 1),
    ],
    ids=[
        "nothing",
        "waiting",
        "adding up",
        "all started",
        "started later",
        "older backlog started first",
        "never less than nothing",
    ],
)
def test_backlog_is_scheduled_minus_started(pairs: list[tuple[int, int]], tasks: int) -> None:
    assert backlog_estimate.estimated_backlog(minutes(*pairs), LONG_AGO) == tasks


@pytest.mark.parametrize(
    ("emptied_at", "tasks"),
    [(NOW - 240, 3), (NOW - 1, 3), (NOW, 1), (NOW + 59, 1), (NOW + 60, 0)],
    ids=["before all", "first in slack", "first out of slack", "second in slack", "after all"],
)
def test_tasks_from_before_emptied_at_do_not_count_except_clock_slack(emptied_at: float, tasks: int) -> None:
    assert backlog_estimate.estimated_backlog(minutes((2, 0), (1, 0)), emptied_at) == tasks


def test_without_workers_the_counts_are_a_lower_bound_of_the_backlog() -> None:
    assert backlog_of(observed(source=counted((4, 0)))) == backlog.Backlog(4, exact=False)


def test_empty_poll_of_a_worker_outweighs_older_counts() -> None:
    answer = backlog_of(observed(worker("w1", reported_at=NOW - 3), busy("w2"), source=counted((4, 0))))

    assert (answer.tasks, answer.emptied_at) == (0, NOW - 3)


@pytest.mark.parametrize(
    "report",
    [
        busy("w1"),
        worker("w1", idle_seconds=0.1),
        worker("w1", poll_trouble=PollTrouble(PollFault.DENIED)),
        worker("w1", reported_at=NOW - 90),
    ],
    ids=["busy", "just freed", "its polls are refused", "stalled"],
)
def test_only_an_idle_polling_worker_proves_an_empty_backlog(report: WorkerFacts) -> None:
    answer = backlog_of(observed(report, source=counted((4, 0))), emptied_at=77.0)

    assert (answer.tasks, answer.emptied_at) == (4, 77.0)


def test_emptied_at_is_the_latest_of_memory_status_and_reports() -> None:
    facts = PoolFacts("team", "pool", "uid", 1, emptied_at=500.0)

    assert backlog_of(observed(source=counted(), pool=facts), emptied_at=400.0).emptied_at == 500.0
    assert backlog_of(observed(source=counted(), pool=facts), emptied_at=600.0).emptied_at == 600.0
    assert backlog_of(observed(worker(reported_at=NOW - 1), source=counted(), pool=facts)).emptied_at == NOW - 1


@pytest.mark.parametrize(("age", "fresh"), [(0.0, True), (299.9, True), (300.0, False), (4000.0, False)])
def test_counts_are_valid_for_five_minutes(age: float, fresh: bool) -> None:
    observation = observed(source=counted((4, 0), age=age))

    assert (backlog_of(observation).tasks, bool(backlog_of(observation).unknown)) == (
        (4, False) if fresh else (None, True)
    )
    assert backlog.stale_at(situation_of(SPEC, observation)) == NOW - age + 300


def test_counts_that_were_never_read_are_unknown_not_zero() -> None:
    assert backlog_of(observed()).unknown == "the backlog has not been read yet"


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"activation": {"mode": "Sentinel"}}, {}),
        ({"activation": {"mode": "None"}, "minWorkers": 1}, {}),
        ({"paused": True}, {}),
        ({"replicas": 2}, {}),
        ({}, {"refusal": "not allowed"}),
        ({}, {"pool": PoolFacts("team", "pool", "uid", 1, deleting=True)}),
    ],
    ids=["sentinel", "none", "paused", "pinned", "refused", "deleting"],
)
def test_backlog_is_not_read_when_unused_or_forbidden(changes: dict[str, Any], facts: dict[str, Any]) -> None:
    spec = pool(**{"activation": {"mode": "CloudWatch"}, **changes})

    assert backlog.counts_source(situation_of(SPEC, observed()))
    assert not backlog.counts_source(situation_of(spec, observed(**facts)))
    answer = backlog.known_backlog(situation_of(spec, observed(source=counted((4, 0)), **facts)), LONG_AGO)
    assert (answer.tasks, answer.unknown) == (None, "")


@pytest.mark.parametrize(
    ("reports", "waiting", "workers"),
    [
        ([], 4, 4),
        ([busy("w1"), busy("w2")], 4, 4),
        ([busy(f"w{number}") for number in range(6)], 4, 7),
        ([busy("w1"), busy("w2")], 0, 3),
        ([busy("w1"), worker("w2")], 4, 2),
    ],
    ids=["no worker", "some run by now", "more run than counted", "spare slot stays", "free slot finds nothing"],
)
def test_old_count_raises_demand_without_adding_running_tasks_twice(
    reports: list[WorkerFacts], waiting: int, workers: int
) -> None:
    observation = observed(*reports, source=counted((waiting, 0)))

    assert task_demand(situation_of(SPEC, observation), None).workers == workers


def test_saturation_grows_the_pool_even_with_a_low_count() -> None:
    observation = observed(*(busy(f"w{number}") for number in range(3)), source=counted((1, 0)))

    full = Saturation(NOW - 5, NOW - 5, frozenset({"w0", "w1", "w2"}))

    assert task_demand(situation_of(SPEC, observation), full).workers == 4


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (counted((4, 0)), "0 running, 0 held, at least 4 waiting"),
        (counted((4, 0), age=301.0), "0 running, 0 held, the backlog was last read 300 s ago or earlier"),
    ],
    ids=["fresh", "old"],
)
def test_reason_names_the_counted_backlog_or_its_age(source: SourceFacts, sentence: str) -> None:
    observation = observed(pending(), source=source)

    assert task_demand(situation_of(SPEC, observation), None).reason == sentence
