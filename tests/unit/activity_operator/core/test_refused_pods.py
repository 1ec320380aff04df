"""Pods that may not be created (a quota, admission): asked for again at the breaker's pace, and never in a circle."""

import pytest

from activity_operator.api.conditions import Reason
from activity_operator.api.spec import PoolSpec
from activity_operator.core.observation import DeploymentFacts, PodFacts
from tests.unit.activity_operator.core.world import World, pool_spec


class Quota(World):
    """A world in which only so many pods may exist; `asked` are the seconds at which more were asked for in vain."""

    def __init__(self, spec: PoolSpec, *, most: int) -> None:
        super().__init__(spec)
        self.truth.most_pods = most
        self.asked: list[float] = []

    def _told(self, kind: str, name: str, facts: PodFacts | DeploymentFacts | None) -> None:
        before = self.term.deployments.get(name)
        if isinstance(facts, DeploymentFacts) and facts.failure and not (before and before.failure):
            self.asked.append(self.now)
        super()._told(kind, name, facts)


def told(world: World, reason: str) -> int:
    return sum(said.reason == reason for said in world.term.said)


def test_a_quota_is_tried_after_5_10_20_40_and_80_seconds_and_said_once() -> None:
    world = Quota(pool_spec(minWorkers=3), most=2)

    decision = world.run(seconds=200)

    # That a try failed is seen one look later.
    assert [at - world.asked[0] for at in world.asked] == pytest.approx([0, 5, 15, 35, 75, 155], abs=1)
    assert decision.memory.breaker.reason == Reason.QUOTA_EXCEEDED
    assert (decision.size.limit, decision.size.desired) == ("breaker", 2)
    assert told(world, "QuotaExceeded") == 1
    assert told(world, "ScaledUp") + told(world, "ScaledDown") <= 1, "the size went in a circle"


def test_a_larger_quota_is_used_at_the_next_try_and_the_pool_then_grows_freely() -> None:
    world = Quota(pool_spec(minWorkers=5), most=1)
    world.run(seconds=20)

    world.truth.most_pods = 10
    decision = world.run(seconds=25)

    assert not decision.memory.breaker.open
    assert len(world.serving()) == 5


def test_a_pool_without_any_pod_is_tried_too() -> None:
    world = Quota(pool_spec(minWorkers=1), most=0)
    world.run(seconds=100)
    assert len(world.asked) == 5

    world.truth.most_pods = 1
    world.run(seconds=80)

    assert len(world.serving()) == 1


def test_a_refused_canary_leaves_the_old_workers_alone_and_comes_when_it_may() -> None:
    world = Quota(pool_spec(minWorkers=2), most=2)
    world.run(seconds=10)
    old = {pod.facts.name for pod in world.serving()}

    world.edit(handlerImage="h:2")
    decision = world.run(seconds=30)
    assert {pod.facts.name for pod in world.serving()} == old
    assert decision.memory.breaker.reason == Reason.QUOTA_EXCEEDED

    world.truth.most_pods = 4
    world.run(seconds=120)
    assert len(world.serving()) == 2
    assert not {pod.facts.name for pod in world.serving()} & old


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

    assert not world.settle().memory.breaker.open
