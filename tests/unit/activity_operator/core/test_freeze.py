"""A frozen pool keeps its size in the directions that `scaling.freeze` names, also under a new leader."""

from dataclasses import replace

import pytest

from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, ScalingMemory
from activity_operator.core.observation import SourceFacts
from tests.unit.activity_operator.core.builders import POOL, busy, counted, observed, pool, window, worker
from tests.unit.activity_operator.core.load import load_of

REDIS = {"activityArn": None, "source": {"redis": {"address": "redis:6379", "flow": "f", "queue": "q"}}}


def decided(freeze: str, tasks: int, last: int = 3, **spec: object) -> Decision:
    """Return the decision of a pool of three workers, for this number of waiting tasks beside one that runs."""
    seen = observed(busy("w1"), worker("w2"), worker("w3"), source=SourceFacts(counts=counted(tasks)))
    return decide(pool(**REDIS, **spec, scaling={"freeze": freeze, **window(0)}), seen, ScalingMemory(size=last))


@pytest.mark.parametrize(
    ("freeze", "tasks", "size", "limit"),
    [
        ("None", 5, 6, "demand"),
        ("ScaleUp", 5, 3, "freeze"),
        ("ScaleDown", 5, 6, "demand"),
        ("Both", 5, 3, "freeze"),
        ("None", 0, 1, "demand"),
        ("ScaleUp", 0, 1, "demand"),
        ("ScaleDown", 0, 3, "freeze"),
        ("Both", 0, 3, "freeze"),
    ],
)
def test_size_stays_in_the_frozen_direction(freeze: str, tasks: int, size: int, limit: str) -> None:
    found = decided(freeze, tasks).size

    assert (found.desired, found.limit) == (size, limit)
    if limit == "freeze":
        assert found.reason.endswith(f"kept at 3 by scaling.freeze {freeze}")


def test_limits_pin_and_pause_apply_to_a_frozen_pool() -> None:
    assert decided("ScaleUp", 0, minWorkers=5).size.desired == 5
    assert decided("ScaleDown", 0, maxWorkers=2).size.desired == 2
    assert decided("Both", 0, replicas=4).size.desired == 4
    assert decided("Both", 0, paused=True).size.desired == 0


def test_new_leader_takes_the_frozen_size_from_the_status() -> None:
    seen = observed(pool=replace(POOL, desired=4), source=SourceFacts(counts=counted(9)))

    assert decide(pool(**REDIS, scaling={"freeze": "Both"}), seen, ScalingMemory()).size.desired == 4


def test_pool_frozen_at_zero_takes_no_lease() -> None:
    """A task that the operator leases there would wait for a worker that may not start."""
    assert decide(pool(), observed(), ScalingMemory()).sentinel.polls > 0
    assert decide(pool(scaling={"freeze": "ScaleUp"}), observed(), ScalingMemory()).sentinel.polls == 0


def test_workers_frozen_against_shrinking_stay_while_no_task_comes() -> None:
    load = load_of("counted", window=0, zero_after=5, scaling={"freeze": "ScaleDown"})
    load.arrive(4)
    load.run(600)

    assert load.left == 0
    assert load.sizes[-1] == 4
    assert len(load.harness.serving()) == 4


def test_busy_pool_frozen_against_growth_takes_no_further_task() -> None:
    """A busy pool asks the service for waiting tasks because it may grow; a frozen one would hold them in vain."""
    polls = {}
    for freeze in ("None", "ScaleUp"):
        load = load_of("sentinel", scaling={"freeze": freeze})
        load.harness.edit(replicas=2)
        load.run(30)
        load.harness.edit(replicas=None)
        load.harness.occupy(*load.harness.pods)
        load.run(90)
        decision = load.harness.settle()
        polls[freeze] = decision.sentinel.polls

    assert polls["None"] > 0
    assert polls["ScaleUp"] == 0
