"""How many tasks wait: the source's own count first, others only for more, and what nobody knows is not zero."""

from typing import Any

import pytest

from activity_operator.core.decision import Breaker
from activity_operator.core.observation import Observation, SourceError, SourceFacts
from activity_operator.core.order import order
from activity_operator.core.signal import Signal
from activity_operator.core.waiting import Waiting, stale_at, waiting, wanted, watched
from tests.unit.activity_operator.core.builders import NOW, POOL, busy, counted, crew, pod, pool, seen

REDIS: dict[str, Any] = {"activityArn": None, "source": {"redis": {"address": "r:1", "flow": "f", "queue": "q"}}}
PROMETHEUS = {"scaling": {"prometheus": {"serverUrl": "http://p", "query": "q"}}}
DOWN = SourceError("BackendUnreachable", "no answer", NOW - 5)


def known(situation: Observation, **spec: Any) -> Waiting:
    """Return what is known of a Redis pool's backlog."""
    return waiting(pool(**REDIS, **spec), situation, crew(situation), 0.0)


def test_a_source_that_counts_is_exact() -> None:
    assert known(seen(source=SourceFacts(signals=counted(3)))) == Waiting(3)


@pytest.mark.parametrize(
    ("source", "tasks", "unknown"),
    [
        (SourceFacts(), None, "the backlog has not been read yet"),
        (SourceFacts(error=DOWN), None, "the backlog cannot be read now"),
        (SourceFacts(signals=counted(3, age=29.9), error=DOWN), 3, ""),
        (SourceFacts(signals=counted(3, age=30.0), error=DOWN), None, "the backlog was last read 30 s ago or earlier"),
    ],
    ids=["never read", "never readable", "a blip", "too old"],
)
def test_what_is_not_known_is_not_zero(source: SourceFacts, tasks: int | None, unknown: str) -> None:
    found = known(seen(source=source))

    assert (found.tasks, found.unknown) == (tasks, unknown)


@pytest.mark.parametrize(
    ("own", "others", "waits"),
    [(3, 5, 4), (3, 2, 3), (0, 1, 0), (0, 0, 0)],
    ids=["more than run and wait", "fewer", "the one that runs", "none"],
)
def test_what_others_count_may_only_ask_for_more(own: int, others: int, waits: int) -> None:
    signals = (*counted(own), *counted(others, exact=False, age=60))

    assert known(seen(busy(), source=SourceFacts(signals=signals)), **PROMETHEUS) == Waiting(waits)


@pytest.mark.parametrize(
    ("counted_all", "waits"),
    [(5, 4), (1, 0), (0, 0), (2, 1)],
    ids=["four wait", "the one that runs", "it has just ended", "a dead worker's"],
)
def test_of_a_count_of_all_jobs_those_that_nobody_runs_wait(counted_all: int, waits: int) -> None:
    signals = (Signal(counted_all, True, NOW, with_running=True),)

    assert known(seen(busy(), source=SourceFacts(signals=signals))) == Waiting(waits)


def test_a_job_on_a_worker_that_leaves_is_not_waiting() -> None:
    signals = (Signal(1, True, NOW, with_running=True),)
    leaving = busy()
    pods = (pod(leaving.pod_uid, deleting=True),)

    assert known(seen(leaving, *pods, source=SourceFacts(signals=signals))) == Waiting(0)


def test_others_alone_are_a_lower_bound_and_missed_when_they_are_silent() -> None:
    spec = pool(**PROMETHEUS)
    told = seen(source=SourceFacts(signals=counted(4, exact=False, age=299)))
    silent = seen(source=SourceFacts(signals=counted(4, exact=False, age=300)))

    assert waiting(spec, told, crew(told), 0.0) == Waiting(4, exact=False)
    found = waiting(spec, silent, crew(silent), 0.0)
    assert (found.tasks, found.unknown) == (None, "Prometheus' count of the backlog was last read 300 s ago or earlier")


def test_a_step_functions_pool_that_nobody_watches_misses_nothing() -> None:
    assert waiting(pool(), seen(), crew(seen()), 0.0) == Waiting(None)


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
def test_a_source_is_left_alone_where_nobody_needs_it(spec: dict[str, Any], facts: dict[str, Any]) -> None:
    assert wanted(pool(**REDIS), seen())
    assert not wanted(pool(**REDIS, **spec), seen(**facts))


def test_a_counted_source_is_counted_and_never_polled() -> None:
    spec = pool(**REDIS, **PROMETHEUS)
    asked = order(spec, seen(), crew(seen()), Breaker(), proven=True)

    assert (asked.polls, asked.counts, asked.watched) == (0, True, True)
    assert watched(spec, seen())
    assert not watched(pool(**REDIS), seen())


def test_a_count_grows_old_only_while_it_cannot_be_read() -> None:
    signals = counted(3, age=10)

    assert stale_at(pool(**REDIS), seen(source=SourceFacts(signals=signals))) is None
    assert stale_at(pool(**REDIS), seen(source=SourceFacts(signals=signals, error=DOWN))) == NOW + 20
