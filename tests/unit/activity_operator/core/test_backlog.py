"""The backlog: the source's own count comes first, other counts can only raise it, and unknown is not zero."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.core.backlog import Backlog, asks_prometheus, counts_source, known_backlog, stale_at
from activity_operator.core.decide import decide
from activity_operator.core.decision import Breaker, Limit, ScalingMemory, Size
from activity_operator.core.observation import BacklogCount, Observation, SourceFacts, SourceProblem
from activity_operator.core.sentinel_plan import plan_sentinel
from activity_operator.core.situation import situation_of
from activity_operator.core.status import pool_status
from tests.unit.activity_operator.core.builders import NOW, POOL, busy, counted, observed, pod, pool

REDIS: dict[str, Any] = {"activityArn": None, "source": {"redis": {"address": "r:1", "flow": "f", "queue": "q"}}}
PROMETHEUS = {"scaling": {"prometheus": {"serverUrl": "http://p", "query": "q"}}}
DOWN = SourceProblem("BackendUnreachable", "no answer", NOW - 5)


def backlog_of(observation: Observation, **spec: Any) -> Backlog:
    """Return the backlog of a Redis pool."""
    return known_backlog(situation_of(pool(**REDIS, **spec), observation), 0.0)


def test_count_of_the_source_is_exact() -> None:
    assert backlog_of(observed(source=SourceFacts(counts=counted(3)))) == Backlog(3)


@pytest.mark.parametrize(
    ("source", "tasks", "unknown"),
    [
        (SourceFacts(), None, "the backlog has not been read yet"),
        (SourceFacts(error=DOWN), None, "the backlog cannot be read now"),
        (SourceFacts(counts=counted(3, age=29.9), error=DOWN), 3, ""),
        (SourceFacts(counts=counted(3, age=30.0), error=DOWN), None, "the backlog was last read 30 s ago or earlier"),
    ],
    ids=["never read", "never readable", "a blip", "too old"],
)
def test_unread_or_stale_count_is_unknown_instead_of_zero(source: SourceFacts, tasks: int | None, unknown: str) -> None:
    found = backlog_of(observed(source=source))

    assert (found.tasks, found.unknown) == (tasks, unknown)


@pytest.mark.parametrize(
    ("own", "others", "waits"),
    [(3, 5, 4), (3, 2, 3), (0, 1, 0), (0, 0, 0)],
    ids=["more than run and wait", "fewer", "the running one", "none"],
)
def test_prometheus_count_can_only_raise_the_backlog(own: int, others: int, waits: int) -> None:
    signals = (*counted(own), *counted(others, exact=False, age=60))

    assert backlog_of(observed(busy(), source=SourceFacts(counts=signals)), **PROMETHEUS) == Backlog(waits)


@pytest.mark.parametrize(
    ("counted_all", "waits"),
    [(5, 4), (1, 0), (0, 0), (2, 1)],
    ids=["four wait", "the running one", "it has just ended", "one of a dead worker"],
)
def test_running_jobs_are_subtracted_from_a_count_of_all_jobs(counted_all: int, waits: int) -> None:
    signals = (BacklogCount(counted_all, True, NOW, with_running=True),)

    assert backlog_of(observed(busy(), source=SourceFacts(counts=signals))) == Backlog(waits)


@pytest.mark.parametrize(
    ("waiting", "running", "waits"),
    [(0, 0, 0), (0, 1, 0), (0, 2, 1), (0, 9, 1), (3, 0, 3), (3, 2, 4)],
    ids=["none", "the running one", "a lost one", "others' jobs", "all wait", "a lost one beside them"],
)
def test_running_jobs_of_other_programs_want_one_worker(waiting: int, running: int, waits: int) -> None:
    signals = (BacklogCount(waiting, True, NOW, running=running),)

    assert backlog_of(observed(busy(), source=SourceFacts(counts=signals))) == Backlog(waits)


def test_count_with_a_gap_is_a_lower_bound_that_holds_the_pool() -> None:
    """One of several taskbrokers gives no answer: the others' tasks start workers, and zero is not certain."""
    gap = BacklogCount(3, True, NOW - 1, missing="no answer from the taskbroker at b:1")
    found = backlog_of(observed(source=SourceFacts(counts=(gap,))))
    assert (found.tasks, found.exact, found.unknown) == (3, False, "no answer from the taskbroker at b:1")


def test_status_shows_since_when_the_oldest_task_waits() -> None:
    """A time, not an age: the status of a pool whose task waits on does not change."""
    spec = pool(activityArn=None, source={"taskbroker": {"addresses": ["b:1"]}})

    def shown(now: float, since: float | None) -> object:
        count = BacklogCount(1, True, now, oldest_since=since)
        observation = replace(observed(source=SourceFacts(counts=(count,))), now=now)
        decision = decide(spec, observation, ScalingMemory())
        return pool_status(spec, observation, decision, None, ()).get("oldestWaitingSince")

    assert shown(NOW, NOW - 5) == shown(NOW + 60, NOW - 5)
    assert shown(NOW, NOW - 5) is not None
    assert shown(NOW, None) is None


def test_uncounted_source_starts_from_zero_by_the_query_alone() -> None:
    """A published taskbroker tells its tasks to statsd only."""
    broker = {"activityArn": None, "source": {"taskbroker": {"addresses": ["b:1"]}}}
    spec = pool(**broker, **PROMETHEUS, activation={"mode": "None"})
    decision = decide(spec, observed(source=SourceFacts(counts=counted(3, exact=False))), ScalingMemory())
    assert decision.size.desired == 3
    assert not decision.sentinel.counts


def test_job_on_a_leaving_worker_is_not_waiting() -> None:
    signals = (BacklogCount(1, True, NOW, with_running=True),)
    leaving = busy()
    pods = (pod(leaving.pod_uid, deleting=True),)

    assert backlog_of(observed(leaving, *pods, source=SourceFacts(counts=signals))) == Backlog(0)


def test_prometheus_count_alone_is_a_lower_bound_until_it_is_stale() -> None:
    spec = pool(**PROMETHEUS)
    fresh = observed(source=SourceFacts(counts=counted(4, exact=False, age=299)))
    silent = observed(source=SourceFacts(counts=counted(4, exact=False, age=300)))

    assert known_backlog(situation_of(spec, fresh), 0.0) == Backlog(4, exact=False)
    found = known_backlog(situation_of(spec, silent), 0.0)
    assert (found.tasks, found.unknown) == (None, "Prometheus' count of the backlog was last read 300 s ago or earlier")


def test_step_functions_pool_without_counts_has_no_unknown_backlog() -> None:
    assert known_backlog(situation_of(pool(), observed()), 0.0) == Backlog(None)


@pytest.mark.parametrize(
    ("spec", "facts"),
    [
        ({"paused": True}, {}),
        ({"activation": {"mode": "None"}, "minWorkers": 1}, {}),
        ({}, {"refusal": "not allowed"}),
        ({}, {"pool": POOL.__class__("team", "pool", "pool-uid", 1, deleting=True)}),
    ],
    ids=["paused", "mode None", "refused", "deleted"],
)
def test_source_is_not_counted_when_its_count_is_unused(spec: dict[str, Any], facts: dict[str, Any]) -> None:
    assert counts_source(situation_of(pool(**REDIS), observed()))
    assert not counts_source(situation_of(pool(**REDIS, **spec), observed(**facts)))


def test_counted_source_is_counted_instead_of_polled() -> None:
    spec = pool(**REDIS, **PROMETHEUS)
    nobody = Size(0, Limit.DEMAND, "")
    asked = plan_sentinel(situation_of(spec, observed()), Breaker(), nobody, ScalingMemory(), proven=True)

    assert (asked.polls, asked.counts, asked.watched) == (0, True, True)
    assert asks_prometheus(situation_of(spec, observed()))
    assert not asks_prometheus(situation_of(pool(**REDIS), observed()))


def test_count_grows_stale_only_while_reading_fails() -> None:
    signals = counted(3, age=10)

    assert stale_at(situation_of(pool(**REDIS), observed(source=SourceFacts(counts=signals)))) is None
    assert stale_at(situation_of(pool(**REDIS), observed(source=SourceFacts(counts=signals, error=DOWN)))) == NOW + 20
