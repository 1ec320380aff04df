"""From tasks to workers, with a count of the backlog and without one."""

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.core.demand import Demand, demand
from activity_operator.core.observation import Observation, SourceFacts, WorkerFacts
from activity_operator.core.saturation import Saturation
from tests.unit.activity_operator.core.builders import NOW, busy, coming, counted, crew, pod, pool, seen, worker


def wanted(situation: Observation, spec: PoolSpec | None = None, saturated_since: float | None = None) -> Demand:
    """Return the demand; all pods there are were the crew of a saturation that may have begun before."""
    spec = spec or pool()
    everybody = frozenset(pod.uid for pod in situation.pods)
    before = None if saturated_since is None else Saturation(saturated_since, saturated_since, everybody)
    return demand(spec, situation, crew(situation, spec), before)


def test_nothing_to_do_wants_nobody() -> None:
    assert wanted(seen(worker())).workers == 0


@pytest.mark.parametrize(
    ("source", "workers"),
    [
        (SourceFacts(signals=counted(0)), 2),
        (SourceFacts(signals=counted(3)), 5),
        (SourceFacts(signals=counted(0), held=1), 3),
        (SourceFacts(signals=counted(0), held=1, claimed=2), 5),
    ],
    ids=["running", "waiting", "held", "claimed"],
)
def test_running_held_and_waiting_tasks_add_up(source: SourceFacts, workers: int) -> None:
    assert wanted(seen(busy("w1"), busy("w2"), source=source)).workers == workers


@pytest.mark.parametrize(
    ("tasks", "slots", "utilization", "workers"),
    [(0, 4, 1.0, 0), (1, 4, 1.0, 1), (4, 4, 1.0, 1), (5, 4, 1.0, 2), (4, 4, 0.8, 2), (7, 1, 0.7, 10), (3, 1, 0.1, 30)],
)
def test_workers_are_rounded_up_for_slots_and_utilization(
    tasks: int, slots: int, utilization: float, workers: int
) -> None:
    spec = pool(slotsPerWorker=slots, scaling={"targetUtilization": utilization})

    assert wanted(seen(source=SourceFacts(signals=counted(tasks))), spec).workers == workers


def test_a_lease_held_at_zero_wants_a_worker() -> None:
    assert wanted(seen(source=SourceFacts(held=1))).workers == 1


@pytest.mark.parametrize(
    ("workers", "source", "wanted_workers"),
    [
        ((worker("w1"),), SourceFacts(held=1), 2),
        ((worker("w1"), worker("w2")), SourceFacts(held=2), 4),
        ((worker("w1", slots=3, open_polls=3),), SourceFacts(held=1), 2),
        ((worker("w1", open_polls=0),), SourceFacts(held=1), 1),
        ((worker("w1", idle_seconds=0.1),), SourceFacts(held=1), 1),
        ((worker("w1"),), SourceFacts(held=1, claimed=1), 2),
        ((worker("w1"),), SourceFacts(claimed=1), 1),
        ((worker("w1"), worker("w2")), SourceFacts(), 0),
    ],
    ids=["idle", "two idle", "three slots", "asks before its poll", "just free", "claims", "claimed", "none held"],
)
def test_a_held_lease_that_workers_in_their_polls_cannot_take_wants_one_that_is_yet_to_poll(
    workers: tuple[WorkerFacts, ...], source: SourceFacts, wanted_workers: int
) -> None:
    slots = max(said.slots for said in workers)

    assert wanted(seen(*workers, source=source), pool(slotsPerWorker=slots)).workers == wanted_workers


def test_a_stalled_workers_place_is_wanted_on_top_because_unknown_is_not_zero() -> None:
    stalled = busy("w1", reported_at=NOW - 90)

    assert wanted(seen(stalled, source=SourceFacts(signals=counted(2)))).workers == 3
    assert wanted(seen(stalled)).workers == 1


@pytest.mark.parametrize(
    ("heard", "workers"),
    [((), 4), ((worker("w1"),), 3), ((busy("w1"), worker("w2")), 4), ((busy("w1"), busy("w2"), busy("w3")), 4)],
    ids=["nobody", "an idle one", "a busy one", "all but one"],
)
def test_workers_of_whom_a_new_leader_has_yet_to_hear_keep_their_places(
    heard: tuple[WorkerFacts, ...], workers: int
) -> None:
    crew = [pod(f"w{n}") for n in range(1, 5)]
    want = wanted(seen(*crew, *heard, leader_since=NOW - 120))

    assert want.workers == workers
    assert f"{4 - len(heard)} workers yet to report to this leader" in want.reason


def test_a_worker_that_starts_under_this_leader_is_not_yet_anybodys_place() -> None:
    assert wanted(seen(pod("w1", running_since=NOW - 5), leader_since=NOW - 120)).workers == 0


def test_without_a_count_one_free_slot_is_kept_while_tasks_run() -> None:
    assert wanted(seen(busy("w1"), worker("w2"))).workers == 2
    assert wanted(seen(busy("w1", slots=2), worker("w2", slots=2)), pool(slotsPerWorker=2)).workers == 1


def test_with_a_count_no_free_slot_is_needed_to_see() -> None:
    assert wanted(seen(busy("w1"), worker("w2"), source=SourceFacts(signals=counted(0)))).workers == 1


@pytest.mark.parametrize(("seconds", "workers"), [(0.0, 4), (0.99, 4), (1.0, 6), (60.0, 6)])
def test_saturation_doubles_only_after_a_second(seconds: float, workers: int) -> None:
    situation = seen(busy("w1"), busy("w2"), busy("w3"))

    assert wanted(situation, saturated_since=NOW - seconds).workers == workers


def test_saturation_doubles_only_when_all_have_started() -> None:
    answer = wanted(seen(busy("w1"), busy("w2"), coming()), saturated_since=NOW - 5)

    assert answer.workers == 3


def test_a_doubling_says_so_and_counts_stalled_places_too() -> None:
    answer = wanted(seen(busy("w1"), busy("w2"), worker("w3", reported_at=NOW - 90)), saturated_since=NOW - 5)

    assert (answer.workers, answer.reason) == (5, "all 2 workers are busy: doubling")


def test_a_cordoned_worker_that_finishes_its_task_does_not_double_the_pool() -> None:
    leaving = (pod("w2", deletion_cost=-1000), busy("w2"))

    assert wanted(seen(busy("w1"), *leaving), saturated_since=NOW - 5).workers == 2


def test_saturation_with_a_count_follows_the_count() -> None:
    answer = wanted(seen(busy("w1"), source=SourceFacts(signals=counted(0))), saturated_since=NOW - 60)

    assert (answer.workers, answer.saturation) == (1, None)


@pytest.mark.parametrize(
    ("backlog", "sentence"), [(None, "1 running, 2 held"), (3, "1 running, 2 held, 3 waiting")], ids=["none", "count"]
)
def test_the_reason_counts_what_is_known(backlog: int | None, sentence: str) -> None:
    assert wanted(seen(busy(), source=SourceFacts(held=2, signals=counted(backlog)))).reason == sentence
