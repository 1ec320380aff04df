"""Pods refused by a quota or by admission: the breaker paces the retries, and the size does not oscillate."""

import pytest

from activity_operator.api.conditions import Reason
from activity_operator.api.spec import PoolSpec
from activity_operator.core.observation import DeploymentFacts, PodFacts
from tests.unit.activity_operator.core.world import World, pool_spec


class Quota(World):
    """A world with at most `most` pods; `asked` lists the times at which pods were requested in vain."""

    def __init__(self, spec: PoolSpec, *, most: int) -> None:
        super().__init__(spec)
        self.truth.most_pods = most
        self.asked: list[float] = []

    def _on_change(self, kind: str, name: str, facts: PodFacts | DeploymentFacts | None) -> None:
        before = self.term.deployments.get(name)
        if isinstance(facts, DeploymentFacts) and facts.failure and not (before and before.failure):
            self.asked.append(self.now)
        super()._on_change(kind, name, facts)


def count_events(world: World, reason: str) -> int:
    return sum(event.reason == reason for event in world.term.events)


def test_quota_is_retried_after_5_10_20_40_and_80_s_with_one_event() -> None:
    world = Quota(pool_spec(minWorkers=3), most=2)

    decision = world.run(seconds=200)

    # The failure of a retry is observed one look later.
    assert [at - world.asked[0] for at in world.asked] == pytest.approx([0, 5, 15, 35, 75, 155], abs=1)
    assert decision.memory.breaker.reason == Reason.QUOTA_EXCEEDED
    assert (decision.size.limit, decision.size.desired) == ("breaker", 2)
    assert count_events(world, "QuotaExceeded") == 1
    assert count_events(world, "ScaledUp") + count_events(world, "ScaledDown") <= 1, "the size oscillated"


def test_larger_quota_is_used_at_the_next_retry() -> None:
    world = Quota(pool_spec(minWorkers=5), most=1)
    world.run(seconds=20)

    world.truth.most_pods = 10
    decision = world.run(seconds=25)

    assert not decision.memory.breaker.open
    assert len(world.serving()) == 5


def test_quota_is_retried_in_a_pool_without_pods() -> None:
    world = Quota(pool_spec(minWorkers=1), most=0)
    world.run(seconds=100)
    assert len(world.asked) == 5

    world.truth.most_pods = 1
    world.run(seconds=80)

    assert len(world.serving()) == 1


def test_refused_rollout_keeps_old_workers_until_quota_allows_it() -> None:
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


def test_breaker_closes_when_refused_pods_are_no_longer_wanted() -> None:
    world = Quota(pool_spec(minWorkers=3), most=2)
    world.run(seconds=10)

    world.edit(minWorkers=2)
    decision = world.run(seconds=30)

    assert not decision.memory.breaker.open


def test_reverted_spec_closes_the_breaker_at_once() -> None:
    world = Quota(pool_spec(minWorkers=2), most=2)
    world.run(seconds=10)
    world.edit(handlerImage="h:2")
    world.run(seconds=60)

    world.edit(handlerImage="h:1")

    assert not world.settle().memory.breaker.open
