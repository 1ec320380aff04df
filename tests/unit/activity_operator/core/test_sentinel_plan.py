"""How many leases the sentinel may take: for the slots that start now, and never more than 200 for a pool."""

from dataclasses import replace

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.core.decide import decide
from activity_operator.core.decision import Breaker, Limit, ScalingMemory, SentinelOrder, Size
from activity_operator.core.observation import SourceFacts
from activity_operator.core.probing import CLEAR_ANSWERS
from activity_operator.core.saturation import Saturation
from activity_operator.core.sentinel_plan import BACKLOG_POLLS, BURST_POLLS, POOL_LEASES, plan_sentinel
from activity_operator.core.situation import situation_of
from activity_operator.core.status import pool_status
from tests.unit.activity_operator.core.builders import NOW, busy, observed, pool
from tests.unit.activity_operator.core.pool_harness import PoolHarness, pool_spec

ALWAYS = {"name": "night", "startTime": "1970-01-01T00:00:00Z", "endTime": "2999-01-01T00:00:00Z"}
FULL = "the operator holds leases up to its limit for all pools"


def plan(
    desired: int, limit: Limit = Limit.DEMAND, held: int = 0, source: SourceFacts | None = None, **changes: object
) -> SentinelOrder:
    seen = replace(observed(), source=SourceFacts(held=held) if source is None else source)
    size = Size(desired, limit, "")
    return plan_sentinel(situation_of(pool(**changes), seen), Breaker(), size, ScalingMemory(), proven=True)


def test_leases_stay_within_the_starting_slots_and_one_round_of_polls() -> None:
    assert plan(0, maxWorkers=500).take == BURST_POLLS
    assert plan(4, maxWorkers=500, slotsPerWorker=5).take == 20 + BURST_POLLS


def test_polls_of_a_burst_go_on_until_the_next_decision() -> None:
    """With one round, polls answered in 0.08 s would wait for a decision that comes a quarter of a second later."""
    few, many = SourceFacts(held=20, at_once=CLEAR_ANSWERS - 1), SourceFacts(held=20, at_once=CLEAR_ANSWERS)

    assert plan(20, maxWorkers=500, source=few).take == 20 + BURST_POLLS
    assert plan(20, maxWorkers=500, source=many).take == 20 + 3 * BACKLOG_POLLS
    assert plan(20, Limit.IDLE, maxWorkers=500, source=many).take == 20


def test_task_list_is_polled_with_few_polls_also_in_a_burst() -> None:
    many = SourceFacts(held=20, at_once=CLEAR_ANSWERS)
    source = {"swf": {"domain": "shop", "taskList": "invoices", "pollAtZero": True}}
    raw = {"source": source, "aws": {"region": "eu-west-1"}, "handlerImage": "i", "maxWorkers": 500}
    seen = replace(observed(), source=many)
    size = Size(20, Limit.DEMAND, "")
    of_list = plan_sentinel(
        situation_of(PoolSpec.model_validate(raw), seen), Breaker(), size, ScalingMemory(), proven=True
    )

    assert plan(20, maxWorkers=500, source=many).polls == BACKLOG_POLLS
    assert of_list.polls == BURST_POLLS


def test_answers_before_polls_that_stay_open_raise_no_leases() -> None:
    source = SourceFacts(held=20, at_once=40, open_polls=2, oldest_poll_at=NOW - 1, observed_at=NOW - 1)

    assert plan(20, maxWorkers=500, source=source).take == 20 + BURST_POLLS


def test_pool_takes_at_most_200_leases_however_large_it_may_become() -> None:
    nearly_full = plan(1000, held=199, maxWorkers=1000, slotsPerWorker=100)
    assert (nearly_full.polls, nearly_full.take) == (1, POOL_LEASES)
    assert plan(1000, held=200, maxWorkers=1000, slotsPerWorker=100).polls == 0


@pytest.mark.parametrize("limit", [Limit.UNPREPARED, Limit.DOUBT, Limit.IDLE, Limit.CRASHING, Limit.MUTE])
def test_stopped_growth_takes_leases_for_present_workers_only(limit: Limit) -> None:
    assert plan(3, limit, maxWorkers=500).take == 3
    assert plan(0, limit, maxWorkers=500).take == 1


@pytest.mark.parametrize(("limit", "polls"), [(Limit.DEMAND, 2), (Limit.IDLE, 0), (Limit.MUTE, 0), (Limit.BREAKER, 0)])
def test_operator_polls_beside_busy_workers_only_while_growth_is_allowed(limit: Limit, polls: int) -> None:
    memory = ScalingMemory(saturation=Saturation(NOW - 5, NOW - 5, frozenset({"w1"})))
    situation = situation_of(pool(), observed(busy("w1")))

    assert plan_sentinel(situation, Breaker(), Size(1, limit, ""), memory, proven=True).polls == polls


def test_burst_of_500_tasks_is_taken_in_rounds_of_ten_polls_up_to_200() -> None:
    harness = PoolHarness(pool_spec(maxWorkers=500), proven=True)
    held = rounds = 0
    while order := harness.settle().sentinel.polls:
        held, rounds = held + order, rounds + 1
        harness.know(SourceFacts(held=held))

    assert (held, harness.replicas) == (200, 200)
    assert rounds <= 23


def test_pool_with_200_leases_says_that_further_tasks_wait_at_the_service() -> None:
    harness = PoolHarness(pool_spec(maxWorkers=500), proven=True)
    harness.know(SourceFacts(held=200))

    size = harness.settle().size

    assert (size.desired, size.limit) == (200, Limit.LEASES)
    assert "most leases for one pool (200); further tasks wait at the service" in size.reason


def test_pool_at_its_own_maximum_does_not_name_the_lease_limit() -> None:
    harness = PoolHarness(pool_spec(maxWorkers=200), proven=True)
    harness.know(SourceFacts(held=200))

    assert harness.settle().size.limit is Limit.DEMAND


def test_budget_of_all_pools_is_named_until_a_worker_works() -> None:
    harness = PoolHarness(pool_spec(), proven=True)
    harness.know(SourceFacts(held=2, withheld=FULL))

    decision = harness.settle()
    assert (decision.size.desired, decision.size.limit) == (2, Limit.LEASES)
    assert decision.size.reason == f"0 running, 2 held; {FULL}"

    harness.run(30.0)
    assert harness.serving()
    assert harness.settle().size.limit is not Limit.LEASES


def test_status_names_the_budget_of_all_pools_as_the_limit_of_the_size() -> None:
    observation = observed(source=SourceFacts(held=2, withheld=FULL))
    decision = decide(pool(), observation, ScalingMemory())
    status = pool_status(pool(), observation, decision, None, ())

    limited = next(each for each in status["conditions"] if each["type"] == "ScalingLimited")
    assert (limited["status"], limited["reason"]) == ("True", "LeaseLimitReached")
    assert limited["message"] == f"0 running, 2 held; {FULL}"
    assert status["decisions"][-1]["limit"] == "leases"


@pytest.mark.parametrize(
    "changes",
    [
        {"paused": True},
        {"replicas": 0},
        {"scaling": {"schedules": [{**ALWAYS, "maxWorkers": 0}]}},
        {"scaling": {"freeze": "ScaleUp"}},
        {"scaling": {"mode": "Recommend"}},
    ],
    ids=["paused", "pinned to 0", "a schedule", "frozen", "recommended only"],
)
def test_lease_waits_while_the_user_lets_no_worker_come(changes: dict[str, object]) -> None:
    decision = decide(pool(**changes), replace(observed(), source=SourceFacts(held=1)), ScalingMemory())

    assert decision.size.desired == 0
    assert decision.sentinel.suspended


def test_lease_of_a_pool_that_may_start_waits_for_its_worker() -> None:
    for held in (0, 1):
        decision = decide(pool(), replace(observed(), source=SourceFacts(held=held)), ScalingMemory())
        assert (decision.size.desired, decision.sentinel.suspended) == (held, False)
