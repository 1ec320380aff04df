"""Scale-in: a worker that may have a task is never removed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activity_operator.core import drain, scale_plan
from activity_operator.core.fleet import CORDON_COST, DRAINED_COST, Member
from activity_operator.core.observation import PodFacts, WorkerFacts
from activity_worker.contract import WorkerState
from tests.unit.activity_operator.core.builders import NOW, busy, members, names, pending, pod, worker


def drained(name: str = "d1", **more: object) -> tuple[PodFacts, WorkerFacts]:
    """Return a removable worker: cordoned, drained, and unready in the watch."""
    facts = pod(name, **{"ready": False, "deletion_cost": DRAINED_COST, **more})
    return facts, worker(name, state=WorkerState.DRAINED)


def test_drained_worker_needs_observed_cost_and_unreadiness_to_be_removed() -> None:
    for facts, may_be_removed in [
        (drained(), True),
        (drained(ready=True), False),
        (drained(deletion_cost=None), False),
        (drained(deletion_cost=CORDON_COST), False),
    ]:
        (member,) = members(*facts)
        assert drain.removable(member) is may_be_removed


def test_busy_cordoned_worker_is_not_removable() -> None:
    (member,) = members(pod(ready=False, deletion_cost=CORDON_COST), busy())

    assert not drain.removable(member)


def test_replicas_fall_by_the_number_of_drained_workers() -> None:
    assert drain.lowest_replicas(members(*drained(), busy("w1"), busy("w2")), 3, 0) == 2


def test_replicas_do_not_fall_below_the_wanted_size() -> None:
    assert drain.lowest_replicas(members(*drained("d1"), *drained("d2"), busy("w1")), 3, 2) == 2


def test_not_ready_cordoned_busy_worker_blocks_scale_in() -> None:
    lost = (pod("lost", ready=False, deletion_cost=-3000), busy("lost"))

    assert drain.lowest_replicas(members(*lost, *drained()), 2, 0) == 2


def test_not_ready_busy_worker_without_cost_does_not_block_scale_in() -> None:
    lost = (pod("lost", ready=False), busy("lost"))

    assert drain.lowest_replicas(members(*lost, *drained()), 2, 0) == 1


def test_pods_that_never_started_may_be_removed() -> None:
    assert drain.lowest_replicas(members(pending("n1"), pending("n2", assigned=False), busy("w1")), 3, 0) == 1


def test_pending_pod_does_not_expose_unready_busy_worker_to_removal() -> None:
    """With a lagging watch a pod shown as Pending may run by now; it then ranks like the unready worker, and newer."""
    lost = (pod("lost", ready=False), busy("lost"))
    cordoned = (pod("lost", ready=False, deletion_cost=CORDON_COST), busy("lost"))

    for pending_pod in (pending("n1"), pending("n1", assigned=False)):
        assert drain.lowest_replicas(members(pending_pod, *lost), 2, 0) == 2
        assert drain.lowest_replicas(members(pending_pod, *cordoned), 2, 0) == 2
        assert drain.lowest_replicas(members(pending_pod, busy("w1")), 2, 0) == 1


def test_drained_worker_stays_while_a_requested_pod_is_not_observed() -> None:
    """Without room for a surge the requested pod is Pending, and a ReplicaSet would remove it first."""
    fleet = members(*drained("d1"), busy("w1"), busy("w2"))

    assert scale_plan.plan_scale(fleet, replicas=4, wanted=4, room=0).replicas == 4
    assert scale_plan.plan_scale(fleet, replicas=3, wanted=3, room=0).replicas == 2


def test_new_cordon_on_unready_pod_does_not_outrank_drained_pod() -> None:
    """The cost is written before the replicas: the unready pod ranks as cordoned, after the drained one."""
    lost = (pod("lost", ready=False), worker("lost"))
    fleet = members(*drained("d1"), *lost, busy("w1"))
    first = scale_plan.plan_scale(fleet, replicas=3, wanted=1, room=0)

    assert (names(first.victims), first.replicas) == (["lost"], 2)
    assert scale_plan.plan_scale(members(*drained("d1"), worker("idle"), busy("w1")), 3, 1, 0).replicas == 2


def test_cordoned_busy_worker_that_turns_unready_goes_after_drained_ones() -> None:
    """Between the observation and the ReplicaSet's own one, a busy worker may miss a readiness probe."""
    cordoned = pod("w1", deletion_cost=CORDON_COST)
    seen = members(*drained("d1"), cordoned, busy("w1"))
    lowest = drain.lowest_replicas(seen, 2, 0)
    later = members(*drained("d1"), replace(cordoned, ready=False), busy("w1"))

    assert lowest == 1
    assert names(sorted(later, key=drain.removal_order)) == ["d1", "w1"]
    assert drain.removal_order(later[0]) != drain.removal_order(later[1])


@pytest.mark.parametrize(
    ("state", "cost", "due"),
    [
        (WorkerState.DRAINED, None, DRAINED_COST),
        (WorkerState.DRAINED, CORDON_COST, DRAINED_COST),
        (WorkerState.DRAINED, DRAINED_COST, None),
        (WorkerState.STOPPED, CORDON_COST, DRAINED_COST),
        (WorkerState.STOPPED, None, None),
        (WorkerState.DRAINING, CORDON_COST, None),
        (WorkerState.STARTING, DRAINED_COST, CORDON_COST),
        (WorkerState.RUNNING, DRAINED_COST, CORDON_COST),
        (WorkerState.RUNNING, None, None),
        (WorkerState.RUNNING, 7, None),
    ],
)
def test_deletion_cost_follows_the_last_report(state: WorkerState, cost: int | None, due: int | None) -> None:
    fleet = members(pod("w1", deletion_cost=cost), worker("w1", state=state))

    assert [(member.pod.name, one) for member, one in drain.due_costs(fleet)] == ([] if due is None else [("w1", due)])


def test_pod_without_report_keeps_its_deletion_cost() -> None:
    assert drain.due_costs(members(pod("w1", deletion_cost=DRAINED_COST), pending("n1"))) == ()


def test_tie_with_a_busy_worker_blocks_scale_in() -> None:
    lost = (pod("lost", ready=False), busy("lost"))
    never = pod("never", ready=False, running_since=NOW - 90)

    assert drain.lowest_replicas(members(*lost, never), 2, 0) == 2
    assert drain.lowest_replicas(members(never, *lost), 2, 0) == 2


def test_pods_not_created_yet_are_given_up_first() -> None:
    assert drain.lowest_replicas(members(busy("w1")), 4, 0) == 1


def test_pods_above_replicas_count_as_being_removed() -> None:
    facts = (*drained("d1"), *drained("d2"), busy("w1"), busy("w2"))

    assert drain.lowest_replicas(members(*facts), 3, 0) == 2
    assert drain.lowest_replicas(members(*facts), 2, 0) == 2


pods = st.builds(
    pod,
    st.just("p"),
    phase=st.sampled_from(["Pending", "Unknown", "Running"]),
    assigned=st.booleans(),
    ready=st.booleans(),
    deletion_cost=st.sampled_from([None, CORDON_COST, DRAINED_COST, -1, 7]),
    running_since=st.sampled_from([0.0, NOW - 10, NOW - 90]),
)
reports = st.none() | st.builds(
    worker,
    st.just("p"),
    state=st.sampled_from(list(WorkerState)),
    busy=st.integers(0, 1),
    reported_at=st.sampled_from([NOW, NOW - 90]),
)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[Member, ...]:
    facts: list[PodFacts | WorkerFacts] = []
    for number, (one, report) in enumerate(draw(st.lists(st.tuples(pods, reports), max_size=7))):
        facts.append(replace(one, name=f"p{number}", uid=f"p{number}"))
        if report is not None:
            facts.append(replace(report, pod_uid=f"p{number}"))
    return members(*facts)


@given(fleets(), st.integers(0, 9), st.integers(0, 9))
def test_no_pod_that_may_be_working_is_ever_removed(fleet: tuple[Member, ...], replicas: int, wanted: int) -> None:
    lowest = drain.lowest_replicas(fleet, replicas, wanted)
    # A ReplicaSet's removal order, with ties broken in the worst way: non-removable pods first.
    order = sorted(fleet, key=lambda member: (drain.removal_order(member), drain.removable(member)))

    if lowest < replicas:
        assert all(drain.removable(member) for member in order[: max(0, len(order) - lowest)])
    assert lowest >= wanted


@given(fleets(), st.integers(0, 9), st.sets(st.integers(0, 6)))
def test_no_cordoned_worker_is_removed_when_it_turns_unready(
    fleet: tuple[Member, ...], wanted: int, unready: set[int]
) -> None:
    """The ReplicaSet sees later readiness than the decision did."""
    fleet = tuple(m for m in fleet if not m.never_started and (m.drained or m.pod.deletion_cost != DRAINED_COST))
    lowest = drain.lowest_replicas(fleet, len(fleet), wanted)
    later = [
        replace(m, pod=replace(m.pod, ready=False)) if n in unready and m.cordoned and not m.drained else m
        for n, m in enumerate(fleet)
    ]
    order = sorted(later, key=lambda member: (drain.removal_order(member), drain.removable(member)))

    assert all(drain.removable(member) for member in order[: max(0, len(order) - lowest)])


@given(fleets())
def test_removable_pods_that_rank_first_are_removed(fleet: tuple[Member, ...]) -> None:
    order = sorted(fleet, key=lambda member: (drain.latest_order(member), drain.removable(member)))
    safe = next((n for n, member in enumerate(order) if not drain.removable(member)), len(order))

    assert drain.lowest_replicas(fleet, len(fleet), 0) == len(fleet) - safe


def test_removal_order_is_the_replica_sets() -> None:
    facts = [
        pending("unassigned", assigned=False),
        pending("pending"),
        pod("unknown", phase="Unknown", ready=False),
        pod("unready", ready=False),
        pod("cordoned", deletion_cost=CORDON_COST),
        pod("plain"),
        pod("dear", deletion_cost=1),
    ]
    line = sorted(members(*reversed(facts)), key=drain.removal_order)

    assert names(line) == [one.name for one in facts]


def test_longest_idle_is_cordoned_first_then_the_least_busy() -> None:
    fleet = members(
        worker("full", slots=2, busy=2),
        worker("short", slots=2, idle_seconds=1),
        worker("half", slots=2, busy=1),
        worker("long", slots=2, idle_seconds=90),
    )

    assert names(drain.choose_victims(fleet, 4)) == ["long", "short", "half", "full"]


def test_busy_workers_are_cordoned_when_none_is_idle() -> None:
    assert names(drain.choose_victims(members(busy("w1"), busy("w2")), 1)) == ["w1"]


def test_only_the_surplus_is_cordoned() -> None:
    assert drain.choose_victims(members(worker("w1")), 0) == ()
    assert drain.choose_victims(members(worker("w1")), -1) == ()


def test_pod_without_report_is_not_cordoned() -> None:
    assert names(drain.choose_victims(members(pending(), pod("mute"), worker("w1")), 3)) == ["w1"]


def test_busiest_cordoned_worker_is_uncordoned_first() -> None:
    cost = CORDON_COST
    fleet = members(pod("w1", deletion_cost=cost), worker("w1"), pod("w2", deletion_cost=cost), busy("w2"))

    assert names(drain.callable_back(fleet, 1)) == ["w2"]


def test_drained_or_silent_worker_is_not_uncordoned() -> None:
    stalled = (pod("w2", deletion_cost=CORDON_COST), worker("w2", reported_at=NOW - 90))

    assert drain.callable_back(members(*drained(), *stalled, worker("w3")), 3) == ()


def test_no_victim_is_picked_for_a_pod_that_is_already_gone() -> None:
    fleet = members(worker("gone"), worker("w2"), worker("w3"))

    assert scale_plan.plan_scale(fleet, replicas=2, wanted=2, room=0) == scale_plan.ScalePlan(2, (), ())
    assert len(scale_plan.plan_scale(fleet, replicas=2, wanted=1, room=0).victims) == 1
    assert len(scale_plan.plan_scale(fleet, replicas=3, wanted=2, room=0).victims) == 1


@pytest.mark.parametrize(
    ("others", "replicas", "wanted", "left"),
    [
        ((), 2, 1, 2),
        ((pending("n1"),), 2, 1, 2),
        ((pending("n1"), pending("n2")), 3, 1, 2),
        ((worker("w2"),), 2, 1, 1),
        ((pending("n1"),), 2, 0, 0),
    ],
    ids=["not yet created", "pending", "one pending too many", "started", "none wanted"],
)
def test_drained_worker_stays_while_a_new_one_would_be_removed_instead(
    others: tuple[PodFacts | WorkerFacts, ...], replicas: int, wanted: int, left: int
) -> None:
    assert scale_plan.plan_scale(members(*drained(), *others), replicas, wanted, room=0).replicas == left
