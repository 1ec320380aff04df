"""Down slowly, up at once, and to zero only on proof."""

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.core.demand import Demand
from activity_operator.core.observation import Observation
from activity_operator.core.stabilize import Recommendations, Stable, expires, stabilize
from tests.unit.activity_operator.core.builders import NOW, busy, coming, crew, pod, pool, seen, window, worker

#: A pool that has been quiet for long: the zero gate is open.
LONG_QUIET = NOW - 9_000


def stable(
    situation: Observation,
    workers: int,
    past: Recommendations = (),
    *,
    spec: PoolSpec | None = None,
    quiet_since: float | None = LONG_QUIET,
    tasks: int = 0,
) -> Stable:
    spec = spec or pool()
    return stabilize(spec, situation, crew(situation, spec), Demand(workers, tasks, ""), past, quiet_since)


def test_up_at_once() -> None:
    answer = stable(seen(worker()), 9, ((NOW - 1, 1),))

    assert (answer.workers, answer.held_by) == (9, "")


@pytest.mark.parametrize(
    ("past", "workers"),
    [
        (((NOW - 59, 8), (NOW - 40, 5)), 8),
        (((NOW - 60, 8), (NOW - 40, 5)), 5),
        (((NOW - 500, 8),), 8),
    ],
    ids=["within the window", "the highest left the window", "what held until now counts from now"],
)
def test_the_window_holds_the_highest_recommendation(past: Recommendations, workers: int) -> None:
    answer = stable(seen(worker()), 2, past)

    assert (answer.workers, answer.held_by) == (workers, "the stabilization window")


def walk(numbers: dict[float, int], spec: PoolSpec) -> list[int]:
    """Return the sizes of a run of decisions, each remembering what the last one did."""
    past: Recommendations = ()
    sizes = []
    for at, number in numbers.items():
        answer = stable(seen(worker(reported_at=NOW + at), now=NOW + at), number, past, spec=spec)
        past = answer.recommendations
        sizes.append(answer.workers)
    return sizes


def test_a_fall_takes_effect_one_window_after_the_last_higher_wish() -> None:
    assert walk({0: 8, 100: 2, 159.9: 2, 160: 2}, pool()) == [8, 8, 8, 2]


def test_a_short_lull_costs_no_workers() -> None:
    assert walk({0: 8, 10: 0, 40: 8, 50: 0, 109: 0, 110: 0}, pool()) == [8, 8, 8, 8, 8, 0]


def test_a_pool_comes_down_in_the_steps_it_wished() -> None:
    assert walk({0: 8, 10: 5, 30: 1, 70: 1, 90: 1}, pool()) == [8, 8, 8, 5, 1]


def test_a_window_of_zero_seconds_holds_nothing() -> None:
    assert walk({0: 8, 10: 2}, pool(scaling=window(0))) == [8, 2]


def test_the_memory_of_a_busy_pool_stays_small() -> None:
    past: Recommendations = ()
    for step in range(600):
        at = NOW + step / 10
        past = stable(seen(worker(reported_at=at), now=at), step % 7, past).recommendations

    assert len(past) <= 8


def test_the_highest_recommendation_expires_a_window_after_it_was_last_true() -> None:
    assert expires((), 60) is None
    assert expires(((5.0, 3),), 60) is None
    assert expires(((5.0, 8), (9.0, 3)), 60) == 65.0


def test_the_moment_of_the_fall_already_knows_when_it_ends() -> None:
    answer = stable(seen(worker()), 2, ((NOW - 30, 8),))

    assert expires(answer.recommendations, 60) == NOW + 60


def test_a_new_leader_waits_a_window() -> None:
    facts = [worker("w1"), worker("w2"), worker("w3")]

    early = stable(seen(*facts, leader_since=NOW - 59.9), 1)
    assert (early.workers, early.held_by) == (3, "a new leader waits one stabilization window")
    assert stable(seen(*facts, leader_since=NOW - 60), 1).workers == 1


def test_a_new_leader_may_grow_at_once() -> None:
    assert stable(seen(worker(), leader_since=NOW), 5).workers == 5


def test_while_the_report_path_is_doubted_everybody_stays() -> None:
    silent = [worker(name, reported_at=NOW - 90) for name in ("w1", "w2", "w3")]
    answer = stable(seen(*silent, worker("w4"), worker("w5"), suspect="reports failed together"), 3)

    assert (answer.workers, answer.held_by) == (5, "reports failed together")


@pytest.mark.parametrize(("quiet", "workers"), [(None, 1), (0.0, 1), (299.9, 1), (300.0, 0)])
def test_zero_only_after_zero_after_quiet_seconds(quiet: float | None, workers: int) -> None:
    assert stable(seen(worker()), 0, quiet_since=None if quiet is None else NOW - quiet).workers == workers


def test_zero_after_is_the_specs() -> None:
    spec = pool(scaling=window(60, zero_after=5))

    assert stable(seen(worker()), 0, spec=spec, quiet_since=NOW - 5).workers == 0


@pytest.mark.parametrize(
    ("situation", "tasks"),
    [
        (seen(worker()), 1),
        (seen(pod("w1", deletion_cost=-1000), busy("w1"), worker("w2")), 0),
        (seen(worker("w1", reported_at=NOW - 90), worker("w2")), 0),
        (seen(pod("mute"), worker("w2")), 0),
        (seen(worker(), suspect="reports failed together"), 0),
    ],
    ids=[
        "a task is known",
        "a task runs on a leaving worker",
        "a worker fell silent",
        "a ready pod has not reported",
        "the report path is doubted",
    ],
)
def test_unknown_is_not_zero(situation: Observation, tasks: int) -> None:
    answer = stable(situation, 0, tasks=tasks)

    assert answer.quiet_since is None
    assert answer.workers >= 1


def test_beside_a_silent_worker_one_that_works_stays() -> None:
    answer = stable(seen(worker("w1", reported_at=NOW - 90), worker("w2")), 1)

    assert (answer.workers, answer.held_by) == (2, "1 stalled worker(s): unknown is not zero")


def test_quiet_counts_from_the_first_sight_and_lasts() -> None:
    assert stable(seen(worker()), 0, quiet_since=None).quiet_since == NOW
    assert stable(seen(worker()), 0, quiet_since=NOW - 7).quiet_since == NOW - 7


def test_pods_never_started_hold_nothing_above_zero() -> None:
    assert stable(seen(coming(waiting_reason="ImagePullBackOff")), 0, quiet_since=None).workers == 0
