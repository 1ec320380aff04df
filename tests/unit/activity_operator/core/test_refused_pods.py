"""Pods refused by a quota or by admission: the breaker paces the retries, and the size does not oscillate."""

import pytest

from activity_operator.api.conditions import Reason
from activity_operator.api.spec import PoolSpec
from activity_operator.core.observation import DeploymentFacts, PodFacts
from tests.unit.activity_operator.core.pool_harness import PoolHarness, pool_spec


class Quota(PoolHarness):
    """A cluster with at most `most` pods; `asked` lists the times at which pods were requested in vain."""

    def __init__(self, spec: PoolSpec, *, most: int) -> None:
        super().__init__(spec)
        self.truth.most_pods = most
        self.asked: list[float] = []

    def _on_change(self, kind: str, name: str, facts: PodFacts | DeploymentFacts | None) -> None:
        before = self.term.deployments.get(name)
        if isinstance(facts, DeploymentFacts) and facts.failure and not (before and before.failure):
            self.asked.append(self.now)
        super()._on_change(kind, name, facts)


def count_events(harness: PoolHarness, reason: str) -> int:
    return sum(event.reason == reason for event in harness.term.events)


def test_quota_is_retried_after_5_10_20_40_and_80_s_with_one_event() -> None:
    harness = Quota(pool_spec(minWorkers=3), most=2)

    decision = harness.run(seconds=200)

    # The failure of a retry is observed one look later.
    assert [at - harness.asked[0] for at in harness.asked] == pytest.approx([0, 5, 15, 35, 75, 155], abs=1)
    assert decision.memory.breaker.reason == Reason.QUOTA_EXCEEDED
    assert (decision.size.limit, decision.size.desired) == ("breaker", 2)
    assert count_events(harness, "QuotaExceeded") == 1
    assert count_events(harness, "ScaledUp") + count_events(harness, "ScaledDown") <= 1, "the size oscillated"


def test_larger_quota_is_used_at_the_next_retry() -> None:
    harness = Quota(pool_spec(minWorkers=5), most=1)
    harness.run(seconds=20)

    harness.truth.most_pods = 10
    decision = harness.run(seconds=25)

    assert not decision.memory.breaker.open
    assert len(harness.serving()) == 5


def test_quota_is_retried_in_a_pool_without_pods() -> None:
    harness = Quota(pool_spec(minWorkers=1), most=0)
    harness.run(seconds=100)
    assert len(harness.asked) == 5

    harness.truth.most_pods = 1
    harness.run(seconds=80)

    assert len(harness.serving()) == 1


def test_refused_rollout_keeps_old_workers_until_quota_allows_it() -> None:
    harness = Quota(pool_spec(minWorkers=2), most=2)
    harness.run(seconds=10)
    old = {pod.facts.name for pod in harness.serving()}

    harness.edit(handlerImage="h:2")
    decision = harness.run(seconds=30)
    assert {pod.facts.name for pod in harness.serving()} == old
    assert decision.memory.breaker.reason == Reason.QUOTA_EXCEEDED

    harness.truth.most_pods = 4
    harness.run(seconds=120)
    assert len(harness.serving()) == 2
    assert not {pod.facts.name for pod in harness.serving()} & old


def test_breaker_closes_when_refused_pods_are_no_longer_wanted() -> None:
    harness = Quota(pool_spec(minWorkers=3), most=2)
    harness.run(seconds=10)

    harness.edit(minWorkers=2)
    decision = harness.run(seconds=30)

    assert not decision.memory.breaker.open


def test_reverted_spec_closes_the_breaker_at_once() -> None:
    harness = Quota(pool_spec(minWorkers=2), most=2)
    harness.run(seconds=10)
    harness.edit(handlerImage="h:2")
    harness.run(seconds=60)

    harness.edit(handlerImage="h:1")

    assert not harness.settle().memory.breaker.open
