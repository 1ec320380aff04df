"""Pods joined with reports: who is capacity, who fell silent, who surely runs nothing."""

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
    coming,
    crew,
    members,
    names,
    pool,
    seen,
    worker,
)
from tests.unit.activity_operator.core.builders import pod as running


def test_a_pod_that_has_yet_to_report_is_capacity_but_works_not() -> None:
    fleet = crew(seen(coming()))

    assert (names(fleet.serving), names(fleet.working)) == (["n1"], [])


@pytest.mark.parametrize(
    "gone",
    [running(deleting=True), running(phase="Failed"), running(phase="Succeeded")],
    ids=["being deleted", "failed", "ended"],
)
def test_pods_that_are_gone_do_not_count(gone: PodFacts) -> None:
    assert crew(seen(gone, busy())).members == ()


def test_a_stalled_worker_is_no_free_capacity() -> None:
    fleet = crew(seen(worker("w1", reported_at=NOW - 60), worker("w2")))

    assert (names(fleet.stalled), names(fleet.serving)) == (["w1"], ["w2"])


def test_a_stalled_workers_tasks_still_count_as_running() -> None:
    fleet = crew(seen(busy(reported_at=NOW - 60)))

    assert (fleet.inflight, fleet.running_tasks) == (0, 1)


def test_a_stalled_worker_keeps_its_place() -> None:
    assert crew(seen(worker("w1", reported_at=NOW - 60), worker("w2"))).present == 2


@pytest.mark.parametrize(
    ("silence", "interval", "stalled"),
    [(59.9, 1.0, False), (60.0, 1.0, True), (60.0, 30.0, False), (89.9, 30.0, False), (90.0, 30.0, True)],
)
def test_stalled_is_the_timeout_but_never_less_than_three_intervals(
    silence: float, interval: float, stalled: bool
) -> None:
    fleet = crew(seen(worker(reported_at=NOW - silence, interval_seconds=interval)))

    assert bool(fleet.stalled) is stalled


def test_the_timeout_is_the_specs() -> None:
    situation = seen(worker(reported_at=NOW - 10))

    assert crew(situation, pool(reports={"timeoutSeconds": 10})).stalled
    assert not crew(situation, pool(reports={"timeoutSeconds": 11})).stalled


@pytest.mark.parametrize("state", [WorkerState.DRAINED, WorkerState.STOPPED, WorkerState.STOPPING])
def test_a_worker_that_leaves_is_no_capacity(state: WorkerState) -> None:
    assert crew(seen(worker(state=state))).serving == ()


def test_a_cordon_is_known_from_the_pod_alone() -> None:
    (member,) = members(running(deletion_cost=-1000), busy())

    assert (member.cordoned, member.serving) == (True, False)


def test_a_cost_above_zero_is_no_cordon() -> None:
    (member,) = members(running(deletion_cost=5), busy())

    assert not member.cordoned


@pytest.mark.parametrize(("waited", "idle"), [(0.0, False), (0.49, False), (0.5, True), (30.0, True)])
def test_a_short_gap_between_tasks_is_not_idle(waited: float, idle: bool) -> None:
    (member,) = members(worker(idle_seconds=waited))

    assert member.idle is idle


def test_idle_time_goes_on_after_the_report() -> None:
    (member,) = members(worker(idle_seconds=0.1, reported_at=NOW - 0.4))

    assert member.idle_for == pytest.approx(0.5)


def test_a_worker_with_every_slot_busy_is_never_idle() -> None:
    (member,) = members(busy(reported_at=NOW - 30, idle_seconds=30.0))

    assert (member.idle, member.idle_for) == (False, 0.0)


def silent(**more: Any) -> PodFacts:
    return running(ready=False, ready_since=0.0, **more)


@pytest.mark.parametrize(
    ("facts", "never_started"),
    [
        (coming(), True),
        (coming(waiting_reason="ImagePullBackOff"), True),
        (running(), False),
        (silent(running_since=NOW - 59), False),
        (silent(running_since=NOW - 60), True),
    ],
    ids=["pending", "unpullable", "ready", "silent for 59 s", "silent for 60 s"],
)
def test_a_pod_that_never_reported_has_started_nothing_once_that_is_sure(facts: PodFacts, never_started: bool) -> None:
    (member,) = members(facts)

    assert member.never_started is never_started


def test_a_new_leader_gives_running_containers_a_minute_to_report() -> None:
    unproven = silent(revision=revision_of(pool()))
    (early,) = members(unproven, leader_since=NOW - 59)
    (late,) = members(unproven, leader_since=NOW - 60)

    assert (early.never_started, late.never_started) == (False, True)


def test_of_a_former_revision_a_new_leader_gives_up_nobody_earlier_than_the_stalled() -> None:
    """The status says of one revision that it had reports: once that is the new one, nobody knows it of the old."""
    proven = replace(POOL, proven_revision=revision_of(pool()))
    (early,) = members(silent(), leader_since=NOW - 299, pool=proven)
    (late,) = members(silent(), leader_since=NOW - 300, pool=proven)

    assert (early.never_started, early.unheard, late.never_started) == (False, True, True)


def test_a_worker_cut_off_with_its_node_before_the_leader_change_is_unknown_not_unstarted() -> None:
    proven = replace(POOL, proven_revision=REVISION)
    (cut_off,) = members(silent(), leader_since=NOW - 3600, pool=proven)
    (hung,) = members(silent(running_since=NOW - 60), leader_since=NOW - 3600, pool=proven)

    assert (cut_off.never_started, hung.never_started) == (False, True)


def test_a_worker_that_reported_has_started_however_its_pod_looks() -> None:
    (member,) = members(coming("w1", waiting_reason="CrashLoopBackOff"), busy())

    assert not member.never_started


def test_members_are_found_by_revision() -> None:
    fleet = crew(seen(running("w1"), running("w2", revision="r2")))

    assert names(fleet.of("r2")) == ["w2"]
