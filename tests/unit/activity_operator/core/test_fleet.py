"""The fleet, pods joined with reports: its capacity, its stalled workers, and the pods that have not started."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import PodFacts
from activity_worker.contract import WorkerState
from tests.unit.activity_operator.core.builders import (
    NOW,
    POOL,
    REVISION,
    busy,
    fleet_of,
    members,
    names,
    observed,
    pending,
    pool,
    worker,
)
from tests.unit.activity_operator.core.builders import pod as running


def test_pod_without_report_is_capacity_but_not_working() -> None:
    fleet = fleet_of(observed(pending()))

    assert (names(fleet.serving), names(fleet.working)) == (["n1"], [])


@pytest.mark.parametrize(
    "gone",
    [running(deleting=True), running(phase="Failed"), running(phase="Succeeded")],
    ids=["being deleted", "failed", "ended"],
)
def test_deleting_and_ended_pods_are_not_members(gone: PodFacts) -> None:
    assert fleet_of(observed(gone, busy())).members == ()


def test_stalled_worker_is_not_serving() -> None:
    fleet = fleet_of(observed(worker("w1", reported_at=NOW - 60), worker("w2")))

    assert (names(fleet.stalled), names(fleet.serving)) == (["w1"], ["w2"])


def test_stalled_workers_tasks_still_count_as_running() -> None:
    fleet = fleet_of(observed(busy(reported_at=NOW - 60)))

    assert (fleet.inflight, fleet.running_tasks) == (0, 1)


def test_stalled_worker_counts_as_present() -> None:
    assert fleet_of(observed(worker("w1", reported_at=NOW - 60), worker("w2"))).present == 2


@pytest.mark.parametrize(
    ("silence", "interval", "stalled"),
    [(59.9, 1.0, False), (60.0, 1.0, True), (60.0, 30.0, False), (89.9, 30.0, False), (90.0, 30.0, True)],
)
def test_worker_stalls_after_the_timeout_or_three_report_intervals(
    silence: float, interval: float, stalled: bool
) -> None:
    fleet = fleet_of(observed(worker(reported_at=NOW - silence, interval_seconds=interval)))

    assert bool(fleet.stalled) is stalled


def test_spec_sets_the_report_timeout() -> None:
    observation = observed(worker(reported_at=NOW - 10))

    assert fleet_of(observation, pool(reports={"timeoutSeconds": 10})).stalled
    assert not fleet_of(observation, pool(reports={"timeoutSeconds": 11})).stalled


@pytest.mark.parametrize("state", [WorkerState.DRAINED, WorkerState.STOPPED, WorkerState.STOPPING])
def test_leaving_worker_is_not_serving(state: WorkerState) -> None:
    assert fleet_of(observed(worker(state=state))).serving == ()


def test_deletion_cost_alone_marks_a_worker_as_cordoned() -> None:
    (member,) = members(running(deletion_cost=-1000), busy())

    assert (member.cordoned, member.serving) == (True, False)


def test_positive_deletion_cost_is_not_a_cordon() -> None:
    (member,) = members(running(deletion_cost=5), busy())

    assert not member.cordoned


@pytest.mark.parametrize(("waited", "idle"), [(0.0, False), (0.49, False), (0.5, True), (30.0, True)])
def test_short_gap_between_tasks_is_not_idle(waited: float, idle: bool) -> None:
    (member,) = members(worker(idle_seconds=waited))

    assert member.idle is idle


def test_idle_time_grows_after_the_report() -> None:
    (member,) = members(worker(idle_seconds=0.1, reported_at=NOW - 0.4))

    assert member.idle_for == pytest.approx(0.5)


def test_worker_with_every_slot_busy_is_never_idle() -> None:
    (member,) = members(busy(reported_at=NOW - 30, idle_seconds=30.0))

    assert (member.idle, member.idle_for) == (False, 0.0)


def silent(**more: Any) -> PodFacts:
    return running(ready=False, ready_since=0.0, **more)


@pytest.mark.parametrize(
    ("facts", "never_started"),
    [
        (pending(), True),
        (pending(waiting_reason="ImagePullBackOff"), True),
        (running(), False),
        (silent(running_since=NOW - 59), False),
        (silent(running_since=NOW - 60), True),
    ],
    ids=["pending", "unpullable", "ready", "silent for 59 s", "silent for 60 s"],
)
def test_pod_without_report_never_started_if_pending_or_silent_for_60_s(facts: PodFacts, never_started: bool) -> None:
    (member,) = members(facts)

    assert member.never_started is never_started


def test_new_leader_gives_running_containers_a_minute_to_report() -> None:
    unproven = silent(revision=revision_of(pool()))
    (early,) = members(unproven, leader_since=NOW - 59)
    (late,) = members(unproven, leader_since=NOW - 60)

    assert (early.never_started, late.never_started) == (False, True)


def test_new_leader_gives_pods_of_an_old_revision_the_stalled_deadline() -> None:
    """The status names one proven revision; whether workers of an older one ever reported is unknown."""
    proven = replace(POOL, proven_revision=revision_of(pool()))
    (early,) = members(silent(), leader_since=NOW - 299, pool=proven)
    (late,) = members(silent(), leader_since=NOW - 300, pool=proven)

    assert (early.never_started, early.unheard, late.never_started) == (False, True, True)


def test_unreachable_worker_of_the_former_term_counts_as_started() -> None:
    proven = replace(POOL, proven_revision=REVISION)
    (cut_off,) = members(silent(), leader_since=NOW - 3600, pool=proven)
    (hung,) = members(silent(running_since=NOW - 60), leader_since=NOW - 3600, pool=proven)

    assert (cut_off.never_started, hung.never_started) == (False, True)


def test_worker_that_reported_has_started_even_if_its_pod_waits() -> None:
    (member,) = members(pending("w1", waiting_reason="CrashLoopBackOff"), busy())

    assert not member.never_started


def test_fleet_selects_members_by_revision() -> None:
    fleet = fleet_of(observed(running("w1"), running("w2", revision="r2")))

    assert names(fleet.of("r2")) == ["w2"]
