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
from tests.unit.activity_operator.core.world import World, pool_spec

GATED: dict[str, Any] = {"maxFailureShare": 0.2, "canaryTasks": 10, "canarySeconds": 300}


def rollout(**gate: Any) -> World:
    """Return a pool of four workers whose image has just been changed; nothing has run on the new one."""
    world = World(pool_spec(minWorkers=4, rollout={**GATED, **gate}), proven=True)
    world.run(10)
    assert len(world.serving()) == 4
    world.edit(handlerImage="h:2")
    return world


def tasks_of(world: World, new: tuple[int, int], old: tuple[int, int] = (40, 0)) -> Callable[[float], TaskWindow]:
    """Return the window of tasks (succeeded, failed) on the new and on the old revision."""
    revision = revision_of(world.spec)

    def window(now: float) -> TaskWindow:
        return tuple(
            TaskPeriod(period_start(now), name, TaskCounts(sum(one), *one, last_error="ValueError" if one[1] else ""))
            for name, one in (("old", old), (revision, new))
        )

    return window


def on_new(world: World) -> int:
    """Return how many workers serve with the new image."""
    return sum(1 for pod in world.serving() if pod.facts.revision == revision_of(world.spec))


def state_of(world: World) -> GateState:
    return world.settle().gate.state


def test_rollout_waits_at_one_worker_for_the_canarys_tasks() -> None:
    world = rollout()
    world.term.tasks = tasks_of(world, (9, 0))
    world.run(200)

    assert (state_of(world), on_new(world), len(world.serving())) == (GateState.JUDGING, 1, 5)

    world.term.tasks = tasks_of(world, (10, 0))
    world.term.wake()
    world.run(200)
    assert (on_new(world), len(world.serving())) == (4, 4)


def test_canary_without_enough_tasks_opens_the_gate_by_time() -> None:
    world = rollout(canarySeconds=100)
    world.run(60)
    assert on_new(world) == 1

    world.run(300)
    assert on_new(world) == 4


def test_revision_whose_tasks_fail_is_stopped_and_the_old_one_serves() -> None:
    world = rollout()
    world.term.tasks = tasks_of(world, (5, 5))
    world.run(900)

    assert (state_of(world), on_new(world), len(world.serving())) == (GateState.STOPPED, 1, 5)
    assert world.warnings.count("RolloutStopped") == 1


def test_rollback_leaves_no_worker_of_the_stopped_revision() -> None:
    world = rollout(onFailure="Rollback")
    world.term.tasks = tasks_of(world, (5, 5))
    world.run(900)

    assert (state_of(world), on_new(world), len(world.serving())) == (GateState.STOPPED, 0, 4)


def test_rollout_under_way_is_stopped_too_and_old_workers_come_back() -> None:
    world = rollout(canarySeconds=0)
    while on_new(world) < 2:
        world.run(5)
    world.term.tasks = tasks_of(world, (5, 5))
    world.term.wake()
    world.run(300)

    assert (on_new(world), len(world.serving())) == (1, 5)


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
    world = rollout()
    world.term.tasks = tasks_of(world, new, old)
    world.run(60)

    assert (state_of(world) is GateState.STOPPED) is stopped


def test_stopped_revision_stays_stopped_when_its_tasks_are_forgotten() -> None:
    world = rollout()
    world.term.tasks = tasks_of(world, (0, 10))
    world.run(60)
    world.term.tasks = tasks_of(world, (0, 0))
    world.run(3600)

    assert (state_of(world), on_new(world)) == (GateState.STOPPED, 1)


def test_new_leader_keeps_a_stopped_rollout_stopped() -> None:
    world = rollout()
    world.term.stopped = revision_of(world.spec)
    world.run(3600)

    assert (state_of(world), on_new(world)) == (GateState.STOPPED, 1)


def test_another_image_begins_a_new_rollout() -> None:
    world = rollout()
    world.term.tasks = tasks_of(world, (0, 10))
    world.run(60)
    world.edit(handlerImage="h:3")
    world.term.tasks = tasks_of(world, (10, 0))
    world.run(600)

    assert (on_new(world), len(world.serving())) == (4, 4)


def test_without_a_share_failing_tasks_stop_no_rollout() -> None:
    world = rollout(maxFailureShare=None)
    world.term.tasks = tasks_of(world, (0, 100))
    world.run(300)

    assert on_new(world) == 4


def test_status_of_a_stopped_rollout_is_stalled_and_ready() -> None:
    world = rollout()
    world.term.tasks = tasks_of(world, (5, 5))
    world.run(120)
    observation = world.term.observe()
    decision = decide(world.spec, observation, world.term.memory)
    status = pool_status(world.spec, observation, decision, None, ())

    conditions = {one["type"]: one for one in status["conditions"]}
    assert (conditions["Ready"]["status"], "Reconciling" in conditions) == ("True", False)
    assert conditions["Stalled"]["reason"] == "RolloutStopped"
    assert "rollout.maxFailureShare 0.2 allows" in conditions["Stalled"]["message"]
    assert status["stoppedRevision"] == revision_of(world.spec)
    assert decide(world.spec, observation, ScalingMemory()).memory.stopped_revision == status["stoppedRevision"]
