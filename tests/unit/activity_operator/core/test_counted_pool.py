"""Pools that read CloudWatch counts instead of polling: from zero to work and back, with late or missing counts."""

from dataclasses import replace

from activity_operator.core.decide import decide
from activity_operator.core.observation import ActivityMetrics, MetricPeriod, SourceFacts, SourceProblem
from activity_operator.core.status import pool_status
from tests.unit.activity_operator.core.pool_harness import FOREVER_SECONDS, START, PoolHarness, pool_spec

SHORT = {"scaleDown": {"stabilizationWindowSeconds": 10, "zeroAfterSeconds": 30}}
DENIED = SourceProblem("AccessDenied", "allow cloudwatch:GetMetricData on *", START)


def harness(**changes: object) -> PoolHarness:
    return PoolHarness(pool_spec(activation={"mode": "CloudWatch"}, scaling=SHORT, **changes))


def read(harness: PoolHarness, *flows: tuple[float, int, int]) -> None:
    """Let the operator read CloudWatch now, with these flows: (seconds from START, scheduled, started)."""
    periods = tuple(MetricPeriod(int(START + at) // 60 * 60, 60, came, went) for at, came, went in flows)
    harness.know(SourceFacts(metrics=ActivityMetrics(periods, harness.now)))


def run(harness: PoolHarness, seconds: float, *flows: tuple[float, int, int]) -> None:
    """Let time pass while CloudWatch, which is read every minute, keeps returning the same flows."""
    for _ in range(int(seconds) // 30):
        read(harness, *flows)
        harness.run(30.0)


def test_counted_work_starts_an_empty_pool_and_no_poll_is_ever_opened() -> None:
    pool = harness()
    read(pool)
    assert pool.settle().sentinel.polls == 0
    assert pool.settle().sentinel.counts
    assert not pool.pods

    read(pool, (-60, 3, 0))
    decision = pool.settle()

    assert len(pool.pods) == 3
    assert decision.sentinel.polls == 0
    assert decision.size.reason == "0 running, 0 held, at least 3 waiting"


def test_pool_grows_to_counted_backlog_and_not_beyond() -> None:
    pool = harness(maxWorkers=40)
    read(pool, (-60, 5, 0))
    pool.settle()
    pool.run(10.0)
    pool.occupy(*list(pool.pods)[:3])
    pool.run(2.0)

    assert len(pool.pods) == 5


def test_late_counts_do_not_restart_a_pool_that_has_done_the_work() -> None:
    pool = harness()
    late = (-60, 3, 0)
    run(pool, 270, late)

    assert not pool.pods
    assert pool.truth.made == 3
    assert pool.truth.taken == []


def test_task_after_last_empty_poll_starts_the_pool_again() -> None:
    pool = harness()
    run(pool, 270, (-60, 3, 0))
    gone = pool.now - START
    pool.run(120.0)

    read(pool, (-60, 3, 0), (gone + 60, 1, 0))
    pool.settle()

    assert len(pool.pods) == 1


def test_pool_keeps_one_worker_while_backlog_is_unreadable() -> None:
    pool = harness()
    run(pool, 30, (-60, 3, 0))
    pool.know(replace(pool.term.source, error=DENIED))

    pool.run(900.0)

    assert len(pool.serving()) == 1
    observation, _, decision, _ = pool.term.look()
    conditions = {c["type"]: c for c in pool_status(pool.spec, observation, decision, None, ())["conditions"]}
    assert conditions["SignalsStale"]["reason"] == "BacklogUnknown"
    assert conditions["Ready"]["reason"] == "AccessDenied"
    read(pool)
    pool.run(60.0)
    assert not pool.pods


def test_starting_pods_are_kept_when_counts_go_missing() -> None:
    pool = harness()
    read(pool, (-60, 3, 0))
    pool.truth.import_seconds = FOREVER_SECONDS
    pool.run(400.0)

    assert len(pool.pods) == 3


def test_new_leader_ignores_counts_older_than_emptied_at_in_status() -> None:
    pool = harness()
    read(pool, (-60, 3, 0))
    observation = pool.term.observe()
    emptied = replace(observation, pool=replace(observation.pool, emptied_at=START + 120))

    assert decide(pool.spec, observation, pool.term.memory).size.desired == 3
    assert decide(pool.spec, emptied, pool.term.memory).size.desired == 0


def test_pool_looks_again_when_its_counts_grow_stale() -> None:
    pool = harness()
    read(pool)

    assert pool.settle().look_again_in == 300.0


def test_stalled_worker_still_blocks_zero() -> None:
    pool = harness()
    run(pool, 30, (-60, 1, 0))
    (worker,) = pool.serving()
    worker.cut = True

    run(pool, 600)

    assert worker.facts.name in pool.pods
