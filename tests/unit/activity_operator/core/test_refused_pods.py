"""Pods that may not be created (a quota, admission): asked for again at the breaker's pace, and never in a circle."""

from dataclasses import dataclass, replace

import pytest

from activity_operator.api.conditions import Reason
from tests.unit.activity_operator.core.world import World, pool_spec

REFUSAL = "pods is forbidden: exceeded quota: few"


@dataclass
class Quota(World):
    """A world in which only so many pods may exist; `asked` are the seconds at which more were asked for in vain."""

    most: int = 1

    def __post_init__(self) -> None:
        self.asked: list[float] = []

    def _reconcile_pods(self, name: str) -> None:
        wanted = self.deployments[name]
        here = [pod for pod in self.pods.values() if pod.revision == wanted.revision]
        may = min(wanted.replicas, len(here) + max(0, self.most - len(self.pods)))
        failure = REFUSAL if may < wanted.replicas else ""
        if failure and not wanted.failure:
            self.asked.append(self.now)
        self.deployments[name] = replace(wanted, replicas=may)
        super()._reconcile_pods(name)
        self.deployments[name] = replace(wanted, failure=failure)


def told(world: World, reason: str) -> int:
    return sum(say.reason == reason for say in world.events)


def test_a_quota_is_tried_after_5_10_20_40_and_80_seconds_and_said_once() -> None:
    world = Quota(pool_spec(minWorkers=3), most=2)

    decision = world.run(seconds=200, step=1.0)

    # That a try failed is seen one look later.
    assert [at - world.asked[0] for at in world.asked] == pytest.approx([0, 5, 15, 35, 75, 155], abs=6)
    assert decision.memory.breaker.reason == Reason.QUOTA_EXCEEDED
    assert (decision.size.limit, decision.size.desired) == ("breaker", 2)
    assert told(world, "QuotaExceeded") == 1
    assert told(world, "ScaledUp") + told(world, "ScaledDown") <= 1, "the size went in a circle"


def test_a_larger_quota_is_used_at_the_next_try_and_the_pool_then_grows_freely() -> None:
    world = Quota(pool_spec(minWorkers=5), most=1)
    world.run(seconds=20, step=1.0)

    world.most = 10
    decision = world.run(seconds=25, step=1.0)

    assert not decision.memory.breaker.open
    assert len(world.serving()) == 5


def test_a_pool_without_any_pod_is_tried_too() -> None:
    world = Quota(pool_spec(minWorkers=1), most=0)
    world.run(seconds=100, step=1.0)
    assert len(world.asked) == 5

    world.most = 1
    world.run(seconds=80, step=1.0)

    assert len(world.serving()) == 1


def test_a_refused_canary_leaves_the_old_workers_alone_and_comes_when_it_may() -> None:
    world = Quota(pool_spec(minWorkers=2), most=2)
    world.run(seconds=10)
    old = {pod.name for pod in world.serving()}

    world.edit(handlerImage="h:2")
    decision = world.run(seconds=30)
    assert {pod.name for pod in world.serving()} == old
    assert decision.memory.breaker.reason == Reason.QUOTA_EXCEEDED

    world.most = 4
    world.run(seconds=120)
    assert len(world.serving()) == 2
    assert not {pod.name for pod in world.serving()} & old


def test_a_pool_that_wants_no_more_forgets_the_refusal() -> None:
    world = Quota(pool_spec(minWorkers=3), most=2)
    world.run(seconds=10)

    world.edit(minWorkers=2)
    decision = world.run(seconds=30)

    assert not decision.memory.breaker.open


def test_a_spec_that_is_put_back_is_well_at_once() -> None:
    world = Quota(pool_spec(minWorkers=2), most=2)
    world.run(seconds=10)
    world.edit(handlerImage="h:2")
    world.run(seconds=60)

    world.edit(handlerImage="h:1")

    assert not world.look().memory.breaker.open
