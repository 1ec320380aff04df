"""The gate of a rollout: a revision whose tasks fail more than the old one's is stopped, and the pool says so."""

from collections.abc import Callable
from typing import Any

import pytest

from activity_operator.core.decide import decide
from activity_operator.core.decision import GateState, ScalingMemory
from activity_operator.core.manifests import revision_of
from activity_operator.core.status import pool_status
from activity_operator.core.task_counts import TaskCounts
from activity_operator.core.task_window import TaskPeriod, TaskWindow, period_start
from activity_worker.contract import Directive
from tests.unit.activity_operator.core.pool_harness import PoolHarness, pool_spec

GATED: dict[str, Any] = {"maxFailureShare": 0.2, "canaryTasks": 10, "canarySeconds": 300}


def rollout(**gate: Any) -> PoolHarness:
    """Return a pool of four workers whose image has just been changed; nothing has run on the new one."""
    harness = PoolHarness(pool_spec(minWorkers=4, rollout={**GATED, **gate}), proven=True)
    harness.run(10)
    assert len(harness.serving()) == 4
    harness.edit(handlerImage="h:2")
    return harness


def tasks_of(
    harness: PoolHarness, new: tuple[int, int], old: tuple[int, int] = (40, 0)
) -> Callable[[float], TaskWindow]:
    """Return the window of tasks (succeeded, failed) on the new and on the old revision."""
    revision = revision_of(harness.spec)

    def window(now: float) -> TaskWindow:
        return tuple(
            TaskPeriod(period_start(now), name, TaskCounts(sum(one), *one, last_error="ValueError" if one[1] else ""))
            for name, one in (("old", old), (revision, new))
        )

    return window


def on_new(harness: PoolHarness) -> int:
    """Return how many workers serve with the new image."""
    return sum(1 for pod in harness.serving() if pod.facts.revision == revision_of(harness.spec))


def state_of(harness: PoolHarness) -> GateState:
    return harness.settle().gate.state


def test_rollout_waits_at_one_worker_for_the_canarys_tasks() -> None:
    harness = rollout()
    harness.term.tasks = tasks_of(harness, (9, 0))
    harness.run(200)

    assert (state_of(harness), on_new(harness), len(harness.serving())) == (GateState.JUDGING, 1, 5)

    harness.term.tasks = tasks_of(harness, (10, 0))
    harness.term.wake()
    harness.run(200)
    assert (on_new(harness), len(harness.serving())) == (4, 4)


def test_canary_polls_while_old_workers_stand_by() -> None:
    """At a low load two of five workers poll. If both are old ones, the canary gets no task to be judged by."""
    harness = rollout()
    harness.run(60)
    decision = harness.settle()
    canary = [pod.facts.uid for pod in harness.serving() if pod.facts.revision == revision_of(harness.spec)]

    assert decision.gate.state is GateState.JUDGING
    assert [decision.directives[uid] for uid in canary] == [Directive.RUN]
    assert Directive.STANDBY in decision.directives.values()


def test_canary_without_enough_tasks_opens_the_gate_by_time() -> None:
    harness = rollout(canarySeconds=100)
    harness.run(60)
    assert on_new(harness) == 1

    harness.run(300)
    assert on_new(harness) == 4


def test_revision_whose_tasks_fail_is_stopped_and_the_old_one_serves() -> None:
    harness = rollout()
    harness.term.tasks = tasks_of(harness, (5, 5))
    harness.run(900)

    assert (state_of(harness), on_new(harness), len(harness.serving())) == (GateState.STOPPED, 1, 5)
    assert harness.warnings.count("RolloutStopped") == 1


def test_rollback_leaves_no_worker_of_the_stopped_revision() -> None:
    harness = rollout(onFailure="Rollback")
    harness.term.tasks = tasks_of(harness, (5, 5))
    harness.run(900)

    assert (state_of(harness), on_new(harness), len(harness.serving())) == (GateState.STOPPED, 0, 4)


def test_rollout_under_way_is_stopped_too_and_old_workers_come_back() -> None:
    harness = rollout(canarySeconds=0)
    while on_new(harness) < 2:
        harness.run(5)
    harness.term.tasks = tasks_of(harness, (5, 5))
    harness.term.wake()
    harness.run(300)

    assert (on_new(harness), len(harness.serving())) == (1, 5)


@pytest.mark.parametrize(
    ("new", "old", "stopped"),
    [
        ((8, 2), (40, 0), False),  # not above the allowed share
        ((7, 3), (40, 0), True),
        ((5, 5), (20, 20), False),  # no more than the old revision
        ((4, 6), (20, 20), True),
        ((0, 9), (40, 0), False),  # too few tasks
    ],
)
def test_share_must_exceed_what_is_allowed_and_the_old_share(
    new: tuple[int, int], old: tuple[int, int], stopped: bool
) -> None:
    harness = rollout()
    harness.term.tasks = tasks_of(harness, new, old)
    harness.run(60)

    assert (state_of(harness) is GateState.STOPPED) is stopped


def test_stopped_revision_stays_stopped_when_its_tasks_are_forgotten() -> None:
    harness = rollout()
    harness.term.tasks = tasks_of(harness, (0, 10))
    harness.run(60)
    harness.term.tasks = tasks_of(harness, (0, 0))
    harness.run(3600)

    assert (state_of(harness), on_new(harness)) == (GateState.STOPPED, 1)


def test_new_leader_keeps_a_stopped_rollout_stopped() -> None:
    harness = rollout()
    harness.term.stopped = revision_of(harness.spec)
    harness.run(3600)

    assert (state_of(harness), on_new(harness)) == (GateState.STOPPED, 1)


def test_another_image_begins_a_new_rollout() -> None:
    harness = rollout()
    harness.term.tasks = tasks_of(harness, (0, 10))
    harness.run(60)
    harness.edit(handlerImage="h:3")
    harness.term.tasks = tasks_of(harness, (10, 0))
    harness.run(600)

    assert (on_new(harness), len(harness.serving())) == (4, 4)


def test_without_a_share_failing_tasks_stop_no_rollout() -> None:
    harness = rollout(maxFailureShare=None)
    harness.term.tasks = tasks_of(harness, (0, 100))
    harness.run(300)

    assert on_new(harness) == 4


def test_status_of_a_stopped_rollout_is_stalled_and_ready() -> None:
    harness = rollout()
    harness.term.tasks = tasks_of(harness, (5, 5))
    harness.run(120)
    observation = harness.term.observe()
    decision = decide(harness.spec, observation, harness.term.memory)
    status = pool_status(harness.spec, observation, decision, None, ())

    conditions = {one["type"]: one for one in status["conditions"]}
    assert (conditions["Ready"]["status"], "Reconciling" in conditions) == ("True", False)
    assert conditions["Stalled"]["reason"] == "RolloutStopped"
    assert "rollout.maxFailureShare 0.2 allows" in conditions["Stalled"]["message"]
    assert status["stoppedRevision"] == revision_of(harness.spec)
    assert decide(harness.spec, observation, ScalingMemory()).memory.stopped_revision == status["stoppedRevision"]
