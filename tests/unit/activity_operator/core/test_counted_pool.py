"""Pools that read counts instead of polling: from zero to work and back, with counts that are late or missing."""

from dataclasses import replace

from activity_operator.core.decide import decide
from activity_operator.core.observation import Counts, Flow, SourceError, SourceFacts
from activity_operator.core.report import status
from tests.unit.activity_operator.core.world import FOREVER_SECONDS, START, World, pool_spec

SHORT = {"scaleDown": {"stabilizationWindowSeconds": 10, "zeroAfterSeconds": 30}}
DENIED = SourceError("AccessDenied", "allow cloudwatch:GetMetricData on *", START)


def world(**changes: object) -> World:
    return World(pool_spec(activation={"mode": "CloudWatch"}, scaling=SHORT, **changes))


def read(world: World, *flows: tuple[float, int, int]) -> None:
    """CloudWatch is read now and tells of these (seconds from START, scheduled, started)."""
    told = tuple(Flow(int(START + at) // 60 * 60, 60, came, went) for at, came, went in flows)
    world.know(SourceFacts(counts=Counts(told, world.now)))


def run(world: World, seconds: float, *flows: tuple[float, int, int]) -> None:
    """Let time pass while CloudWatch, read every minute, goes on telling the same."""
    for _ in range(int(seconds) // 30):
        read(world, *flows)
        world.run(30.0)


def test_counted_work_starts_an_empty_pool_and_no_poll_is_ever_opened() -> None:
    pool = world()
    read(pool)
    assert pool.settle().sentinel.polls == 0
    assert pool.settle().sentinel.counts
    assert not pool.pods

    read(pool, (-60, 3, 0))
    decision = pool.settle()

    assert len(pool.pods) == 3
    assert decision.sentinel.polls == 0
    assert decision.size.reason == "0 running, 0 held, at least 3 waiting"


def test_the_pool_grows_to_a_counted_backlog_while_all_work_and_not_beyond_it() -> None:
    pool = world(maxWorkers=40)
    read(pool, (-60, 5, 0))
    pool.settle()
    pool.run(10.0)
    pool.occupy(*list(pool.pods)[:3])
    pool.run(2.0)

    assert len(pool.pods) == 5


def test_counts_that_arrive_late_do_not_bring_back_a_pool_that_has_done_the_work() -> None:
    pool = world()
    late = (-60, 3, 0)
    run(pool, 270, late)

    assert not pool.pods
    assert pool.truth.made == 3
    assert pool.truth.taken == []


def test_new_work_after_the_last_look_of_a_worker_starts_the_pool_again() -> None:
    pool = world()
    run(pool, 270, (-60, 3, 0))
    gone = pool.now - START
    pool.run(120.0)

    read(pool, (-60, 3, 0), (gone + 60, 1, 0))
    pool.settle()

    assert len(pool.pods) == 1


def test_the_pool_does_not_go_to_zero_while_nobody_would_notice_work_there() -> None:
    pool = world()
    run(pool, 30, (-60, 3, 0))
    pool.know(replace(pool.term.source, error=DENIED))

    pool.run(900.0)

    assert len(pool.serving()) == 1
    seen, _, decision, _ = pool.term.look()
    conditions = {c["type"]: c for c in status(pool.spec, seen, decision, None, ())["conditions"]}
    assert conditions["SignalsStale"]["reason"] == "BacklogUnknown"
    assert conditions["Ready"]["reason"] == "AccessDenied"
    read(pool)
    pool.run(60.0)
    assert not pool.pods


def test_pods_on_their_way_are_kept_when_the_counts_go_missing() -> None:
    pool = world()
    read(pool, (-60, 3, 0))
    pool.truth.import_seconds = FOREVER_SECONDS
    pool.run(400.0)

    assert len(pool.pods) == 3


def test_a_new_leader_takes_the_empty_moment_from_the_status_and_starts_nobody_for_old_work() -> None:
    pool = world()
    read(pool, (-60, 3, 0))
    seen = pool.term.observe()
    emptied = replace(seen, pool=replace(seen.pool, emptied_at=START + 120))

    assert decide(pool.spec, seen, pool.term.memory).size.desired == 3
    assert decide(pool.spec, emptied, pool.term.memory).size.desired == 0


def test_the_answer_is_looked_at_again_when_the_counts_in_hand_grow_old() -> None:
    pool = world()
    read(pool)

    assert pool.settle().look_again_in == 300.0


def test_a_stalled_worker_still_blocks_zero() -> None:
    pool = world()
    run(pool, 30, (-60, 1, 0))
    (worker,) = pool.serving()
    worker.cut = True

    run(pool, 600)

    assert worker.facts.name in pool.pods
