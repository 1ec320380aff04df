"""The stabilized size: up at once, down after a window, and to zero only on proof."""

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.core.demand import Demand
from activity_operator.core.observation import Observation
from activity_operator.core.situation import situation_of
from activity_operator.core.stabilize import Recommendations, Stable, falls_at, stabilized
from tests.unit.activity_operator.core.builders import NOW, busy, observed, pending, pod, pool, window, worker

#: Quiet for longer than zeroAfterSeconds, so the pool may go to zero.
LONG_QUIET = NOW - 9_000


def stable(
    observation: Observation,
    workers: int,
    past: Recommendations = (),
    *,
    spec: PoolSpec | None = None,
    quiet_since: float | None = LONG_QUIET,
    tasks: int = 0,
    last: int | None = None,
) -> Stable:
    spec = spec or pool()
    return stabilized(situation_of(spec, observation), Demand(workers, tasks, ""), past, quiet_since, last)


def test_size_rises_at_once() -> None:
    answer = stable(observed(worker()), 9, ((NOW - 1, 1),))

    assert (answer.workers, answer.held_by) == (9, "")


@pytest.mark.parametrize(
    ("past", "workers"),
    [
        (((NOW - 59, 8), (NOW - 40, 5)), 8),
        (((NOW - 60, 8), (NOW - 40, 5)), 5),
        (((NOW - 500, 8),), 8),
    ],
    ids=["within the window", "the highest left the window", "a single old recommendation counts from now"],
)
def test_window_holds_the_highest_recommendation(past: Recommendations, workers: int) -> None:
    answer = stable(observed(worker()), 2, past)

    assert (answer.workers, answer.held_by) == (workers, "the stabilization window")


def walk(numbers: dict[float, int], spec: PoolSpec) -> list[int]:
    """Return the sizes of a series of decisions, each of which starts from the recommendations of the one before."""
    past: Recommendations = ()
    sizes = []
    for at, number in numbers.items():
        answer = stable(observed(worker(reported_at=NOW + at), now=NOW + at), number, past, spec=spec)
        past = answer.recommendations
        sizes.append(answer.workers)
    return sizes


def test_size_falls_one_window_after_the_last_higher_recommendation() -> None:
    assert walk({0: 8, 100: 2, 159.9: 2, 160: 2}, pool()) == [8, 8, 8, 2]


def test_short_lull_costs_no_workers() -> None:
    assert walk({0: 8, 10: 0, 40: 8, 50: 0, 109: 0, 110: 0}, pool()) == [8, 8, 8, 8, 8, 0]


def test_size_falls_in_the_steps_of_the_recommendations() -> None:
    assert walk({0: 8, 10: 5, 30: 1, 70: 1, 90: 1}, pool()) == [8, 8, 8, 5, 1]


def test_window_of_zero_seconds_holds_nothing() -> None:
    assert walk({0: 8, 10: 2}, pool(scaling=window(0))) == [8, 2]


def test_memory_of_a_busy_pool_stays_small() -> None:
    past: Recommendations = ()
    for step in range(600):
        at = NOW + step / 10
        past = stable(observed(worker(reported_at=at), now=at), step % 7, past).recommendations

    assert len(past) <= 8


def falls(past: Recommendations, spec: PoolSpec | None = None) -> float | None:
    return falls_at(situation_of(spec or pool(), observed(worker())), past)


def test_highest_recommendation_expires_one_window_after_its_last_use() -> None:
    assert falls(()) is None
    assert falls(((NOW, 3),)) is None
    assert falls(((NOW - 4, 8), (NOW, 3))) == NOW + 56


def test_first_lower_recommendation_sets_the_expiry() -> None:
    assert falls(stable(observed(worker()), 2, ((NOW - 30, 8),)).recommendations) == NOW + 60


#: A window that the operator sets: 60 s, as no pod has started yet.
OWN_WINDOW = pool(scaling={"scaleDown": {}}, maxWorkers=200)


def test_window_of_the_operator_fades_to_a_tenth() -> None:
    """Forty workers that no task needs leave in steps of six seconds; four of them stay to the end of the window."""
    sizes = walk({0: 40, 10: 0, 16: 0, 22: 0, 40: 0, 64: 0, 69.9: 0, 70: 0}, OWN_WINDOW)

    assert sizes == [40, 38, 34, 30, 18, 4, 4, 0]


def test_window_fades_to_the_need_and_not_below_it() -> None:
    assert walk({0: 40, 10: 20, 40: 20, 69.9: 20, 70: 20}, OWN_WINDOW) == [40, 39, 29, 24, 20]


def test_window_that_fades_starts_no_worker() -> None:
    """A need that rises by 4 beside 38 surplus workers needs none: half of them would still be kept on top of it."""
    past = ((NOW - 30, 40),)

    assert stable(observed(worker()), 6, (*past, (NOW, 2)), spec=OWN_WINDOW, last=18).workers == 18
    assert stable(observed(worker()), 19, (*past, (NOW, 2)), spec=OWN_WINDOW, last=18).workers == 19
    assert stable(observed(worker()), 6, (*past, (NOW, 2)), spec=OWN_WINDOW).workers == 22


def test_last_worker_stays_to_the_end_of_a_window_that_fades() -> None:
    assert walk({0: 1, 10: 0, 69.9: 0, 70: 0}, OWN_WINDOW) == [1, 1, 1, 0]


@pytest.mark.parametrize(
    "spec",
    [
        pool(scaling=window(50), maxWorkers=200),
        pool(scaling={"scaleDown": {}}, maxWorkers=200, activation={"mode": "None"}, minWorkers=1),
        pool(scaling={"scaleDown": {}}, maxWorkers=200, activation={"mode": "CloudWatch"}),
    ],
    ids=["a window of the user", "every idle worker polls", "every idle worker polls, from zero"],
)
def test_window_does_not_fade_where_that_saves_nothing_or_nobody_asked(spec: PoolSpec) -> None:
    assert walk({0: 40, 10: 1, 59.9: 1, 60: 1}, spec) == [40, 40, 40, 1]


def test_pool_looks_again_at_each_step_of_a_window_that_fades() -> None:
    past = ((NOW - 10, 40), (NOW - 4, 9), (NOW, 3))

    assert falls(past, OWN_WINDOW) == NOW + 2
    assert falls(((NOW - 12, 40), (NOW, 3)), OWN_WINDOW) == NOW + 6
    assert falls(((NOW, 3),), OWN_WINDOW) is None


@pytest.mark.parametrize("began", [NOW + 0.1, 1_763_800_000.7, 1_763_800_001.23])
@pytest.mark.parametrize("start", [None, 2.9, 5.7])
def test_every_step_of_a_window_that_fades_is_a_lower_size(began: float, start: float | None) -> None:
    """A decision that is due at a step must not miss it through rounding: nothing else would ask again."""
    past: Recommendations = ((began, 40),)
    at, sizes = began, []
    while True:
        situation = situation_of(OWN_WINDOW, observed(worker(reported_at=at), now=at), start)
        answer = stabilized(situation, Demand(0, 0, ""), past, LONG_QUIET)
        past = answer.recommendations
        sizes.append(answer.workers)
        due = falls_at(situation, past)
        if due is None:
            break
        assert due > at
        at = due

    assert sizes == [38, 34, 30, 26, 22, 18, 14, 10, 6, 4, 0]


def test_new_leader_waits_a_window() -> None:
    facts = [worker("w1"), worker("w2"), worker("w3")]

    early = stable(observed(*facts, leader_since=NOW - 59.9), 1)
    assert (early.workers, early.held_by) == (3, "a new leader waits one stabilization window")
    assert stable(observed(*facts, leader_since=NOW - 60), 1).workers == 1


def test_new_leader_may_grow_at_once() -> None:
    assert stable(observed(worker(), leader_since=NOW), 5).workers == 5


def test_degraded_report_path_holds_the_size() -> None:
    silent = [worker(name, reported_at=NOW - 90) for name in ("w1", "w2", "w3")]
    answer = stable(observed(*silent, worker("w4"), worker("w5"), report_path_problem="reports failed together"), 3)

    assert (answer.workers, answer.held_by) == (5, "reports failed together")


@pytest.mark.parametrize(("quiet", "workers"), [(None, 1), (0.0, 1), (299.9, 1), (300.0, 0)])
def test_pool_goes_to_zero_after_zero_after_seconds_of_quiet(quiet: float | None, workers: int) -> None:
    assert stable(observed(worker()), 0, quiet_since=None if quiet is None else NOW - quiet).workers == workers


def test_spec_sets_zero_after_seconds() -> None:
    spec = pool(scaling=window(60, zero_after=5))

    assert stable(observed(worker()), 0, spec=spec, quiet_since=NOW - 5).workers == 0


@pytest.mark.parametrize(
    ("observation", "tasks"),
    [
        (observed(worker()), 1),
        (observed(pod("w1", deletion_cost=-1000), busy("w1"), worker("w2")), 0),
        (observed(worker("w1", reported_at=NOW - 90), worker("w2")), 0),
        (observed(pod("mute"), worker("w2")), 0),
        (observed(worker(), report_path_problem="reports failed together"), 0),
    ],
    ids=[
        "a task is known",
        "a task runs on a leaving worker",
        "a worker fell silent",
        "a ready pod has not reported",
        "the report path is degraded",
    ],
)
def test_unknown_is_not_zero(observation: Observation, tasks: int) -> None:
    answer = stable(observation, 0, tasks=tasks)

    assert answer.quiet_since is None
    assert answer.workers >= 1


def test_working_worker_stays_beside_a_stalled_one() -> None:
    answer = stable(observed(worker("w1", reported_at=NOW - 90), worker("w2")), 1)

    assert (answer.workers, answer.held_by) == (2, "1 stalled worker(s): unknown is not zero")


def test_quiet_since_is_the_first_quiet_observation() -> None:
    assert stable(observed(worker()), 0, quiet_since=None).quiet_since == NOW
    assert stable(observed(worker()), 0, quiet_since=NOW - 7).quiet_since == NOW - 7


def test_pods_that_never_started_do_not_keep_the_pool_above_zero() -> None:
    assert stable(observed(pending(waiting_reason="ImagePullBackOff")), 0, quiet_since=None).workers == 0
