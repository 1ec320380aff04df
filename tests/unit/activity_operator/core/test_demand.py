"""Number of workers that tasks need, with and without a count of the backlog."""

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.core.demand import Demand, task_demand
from activity_operator.core.observation import Observation, SourceFacts, SourceProblem, WorkerFacts
from activity_operator.core.saturation import Saturation
from activity_operator.core.situation import situation_of
from tests.unit.activity_operator.core.builders import NOW, busy, counted, observed, pod, pool, worker

#: A pool whose source the operator may not poll, so that only the slots show a backlog.
UNPOLLED = {"minWorkers": 1, "activation": {"mode": "None"}}


def demand_of(observation: Observation, spec: PoolSpec | None = None, saturated_since: float | None = None) -> Demand:
    """Return the demand; with `saturated_since`, all pods have been saturated since that time."""
    spec = spec or pool()
    all_pods = frozenset(pod.uid for pod in observation.pods)
    before = None if saturated_since is None else Saturation(saturated_since, saturated_since, all_pods)
    return task_demand(situation_of(spec, observation), before)


def test_no_tasks_means_no_demand() -> None:
    assert demand_of(observed(worker())).workers == 0


@pytest.mark.parametrize(
    ("source", "workers"),
    [
        (SourceFacts(counts=counted(0)), 2),
        (SourceFacts(counts=counted(3)), 5),
        (SourceFacts(counts=counted(0), held=1), 3),
        (SourceFacts(counts=counted(0), held=1, claimed=2), 5),
    ],
    ids=["running", "waiting", "held", "claimed"],
)
def test_running_held_and_waiting_tasks_add_up(source: SourceFacts, workers: int) -> None:
    assert demand_of(observed(busy("w1"), busy("w2"), source=source)).workers == workers


@pytest.mark.parametrize(
    ("tasks", "slots", "utilization", "workers"),
    [(0, 4, 1.0, 0), (1, 4, 1.0, 1), (4, 4, 1.0, 1), (5, 4, 1.0, 2), (4, 4, 0.8, 2), (7, 1, 0.7, 10), (3, 1, 0.1, 30)],
)
def test_workers_are_rounded_up_for_slots_and_utilization(
    tasks: int, slots: int, utilization: float, workers: int
) -> None:
    spec = pool(slotsPerWorker=slots, scaling={"targetUtilization": utilization})

    assert demand_of(observed(source=SourceFacts(counts=counted(tasks))), spec).workers == workers


def test_held_lease_without_workers_needs_one_worker() -> None:
    assert demand_of(observed(source=SourceFacts(held=1))).workers == 1


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
    ids=["idle", "two idle", "three slots", "not polling yet", "just freed", "claims", "claimed", "none held"],
)
def test_held_lease_needs_a_new_worker_while_idle_workers_are_in_polls(
    workers: tuple[WorkerFacts, ...], source: SourceFacts, wanted_workers: int
) -> None:
    slots = max(report.slots for report in workers)

    assert demand_of(observed(*workers, source=source), pool(slotsPerWorker=slots)).workers == wanted_workers


def test_stalled_worker_counts_as_demand_in_addition_to_tasks() -> None:
    stalled = busy("w1", reported_at=NOW - 90)

    assert demand_of(observed(stalled, source=SourceFacts(counts=counted(2)))).workers == 3
    assert demand_of(observed(stalled)).workers == 1


@pytest.mark.parametrize(
    ("reports", "workers"),
    [((), 4), ((worker("w1"),), 3), ((busy("w1"), worker("w2")), 3), ((busy("w1"), busy("w2"), busy("w3")), 4)],
    ids=["none", "an idle one", "a busy one", "all but one"],
)
def test_workers_without_report_to_new_leader_are_kept(reports: tuple[WorkerFacts, ...], workers: int) -> None:
    pods = [pod(f"w{n}") for n in range(1, 5)]
    demand = demand_of(observed(*pods, *reports, leader_since=NOW - 120))

    assert demand.workers == workers
    assert f"{4 - len(reports)} workers yet to report to this leader" in demand.reason


def test_worker_that_starts_in_this_term_adds_no_demand() -> None:
    assert demand_of(observed(pod("w1", running_since=NOW - 5), leader_since=NOW - 120)).workers == 0


def test_one_task_needs_one_worker_where_the_operator_may_poll() -> None:
    assert demand_of(observed(busy("w1"), worker("w2"))).workers == 1


def test_where_the_operator_may_not_poll_one_slot_is_kept_free() -> None:
    assert demand_of(observed(busy("w1"), worker("w2")), pool(**UNPOLLED)).workers == 2
    two_slots = observed(busy("w1", slots=2), worker("w2", slots=2))
    assert demand_of(two_slots, pool(slotsPerWorker=2, **UNPOLLED)).workers == 1


@pytest.mark.parametrize(
    "source",
    [
        SourceFacts(error=SourceProblem("AccessDenied", "allow states:GetActivityTask", NOW)),
        SourceFacts(withheld="the operator holds leases up to its limit"),
    ],
    ids=["polls fail", "no room for leases"],
)
def test_pool_whose_polls_do_not_count_tasks_keeps_one_slot_free(source: SourceFacts) -> None:
    assert demand_of(observed(busy("w1"), source=source)).workers == 2


def test_with_a_count_no_spare_slot_is_kept() -> None:
    assert demand_of(observed(busy("w1"), worker("w2"), source=SourceFacts(counts=counted(0)))).workers == 1


@pytest.mark.parametrize("seconds", [1.0, 60.0])
def test_busy_workers_start_no_other_where_the_operator_may_poll(seconds: float) -> None:
    assert demand_of(observed(busy("w1"), busy("w2"), busy("w3")), saturated_since=NOW - seconds).workers == 3


@pytest.mark.parametrize(("seconds", "workers"), [(0.0, 4), (0.99, 4), (1.0, 4), (60.0, 4)])
def test_first_step_of_blind_growth_is_one_worker(seconds: float, workers: int) -> None:
    observation = observed(busy("w1"), busy("w2"), busy("w3"))

    assert demand_of(observation, pool(**UNPOLLED), saturated_since=NOW - seconds).workers == workers


def test_step_of_blind_growth_is_named_and_includes_stalled_workers() -> None:
    some = observed(busy("w1"), busy("w2"), worker("w3", reported_at=NOW - 90))
    answer = demand_of(some, pool(**UNPOLLED), saturated_since=NOW - 5)

    assert (answer.workers, answer.reason) == (4, "all 2 workers are busy: 1 more")


def test_cordoned_worker_that_finishes_its_task_is_not_counted_as_busy() -> None:
    leaving = (pod("w2", deletion_cost=-1000), busy("w2"))

    assert demand_of(observed(busy("w1"), *leaving), saturated_since=NOW - 5).workers == 1


def test_count_outweighs_saturation() -> None:
    answer = demand_of(observed(busy("w1"), source=SourceFacts(counts=counted(0))), saturated_since=NOW - 60)

    assert (answer.workers, answer.saturation) == (1, None)


@pytest.mark.parametrize(
    ("backlog", "sentence"), [(None, "1 running, 2 held"), (3, "1 running, 2 held, 3 waiting")], ids=["none", "count"]
)
def test_reason_lists_running_held_and_waiting_tasks(backlog: int | None, sentence: str) -> None:
    assert demand_of(observed(busy(), source=SourceFacts(held=2, counts=counted(backlog)))).reason == sentence
