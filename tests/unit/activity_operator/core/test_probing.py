"""Growth without a count: while every worker is busy the operator polls, and what it gets is the number of tasks."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, ScalingMemory
from activity_operator.core.estimates import AWS_POLL_SECONDS, Estimates
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import SourceFacts, WorkerFacts
from activity_operator.core.probing import EMPTY_SECONDS
from activity_operator.core.saturation import Saturation
from activity_operator.core.sentinel_plan import BACKLOG_POLLS, BURST_POLLS, RESTING_POLLS
from activity_worker.contract import PollFault, PollTrouble
from tests.unit.activity_operator.core.builders import NOW, busy, observed, pool, worker
from tests.unit.activity_operator.core.load import load_of
from tests.unit.activity_operator.core.pool_harness import PoolHarness, pool_spec

CANNOT_POLL = PollTrouble(PollFault.DENIED, "AccessDeniedException")
NOTHING = SourceFacts()
#: All workers have been busy for a moment.
BUSY = ScalingMemory(saturation=Saturation(NOW - 5, NOW - 5, frozenset({"w1", "w2"})))


def decided(
    *reports: WorkerFacts, source: SourceFacts = NOTHING, memory: ScalingMemory = BUSY, **spec: Any
) -> Decision:
    """Return the decision about a pool of a proven revision with these workers."""
    wanted = pool(**{"maxWorkers": 50, **spec})
    seen = observed(*reports, source=source)
    seen = replace(seen, pods=tuple(replace(one, revision=revision_of(wanted)) for one in seen.pods))
    return decide(wanted, replace(seen, pool=replace(seen.pool, proven_revision=revision_of(wanted))), memory)


def test_operator_polls_while_every_worker_is_busy() -> None:
    assert decided(busy("w1"), busy("w2")).sentinel.polls == RESTING_POLLS
    assert decided(busy("w1"), worker("w2")).sentinel.polls == 0


def test_operator_polls_only_once_the_workers_have_been_busy_for_a_moment() -> None:
    first = decided(busy("w1"), busy("w2"), memory=ScalingMemory())

    assert first.sentinel.polls == 0
    assert first.look_again_in is not None
    assert first.look_again_in <= 0.5


@pytest.mark.parametrize(
    ("seconds", "tasks_a_second", "busy_for", "polls"),
    [(0.5, 20.0, 0.6, 0), (0.5, 20.0, 2.0, 2), (0.5, 5.0, 0.6, 2), (5.0, 20.0, 0.6, 2)],
    ids=["many short tasks", "busy for longer", "few short tasks", "long tasks"],
)
def test_operator_polls_later_beside_many_short_tasks(
    seconds: float, tasks_a_second: float, busy_for: float, polls: int
) -> None:
    """Any poll gets one of them soon, also where none waits, and delays it."""
    load = (seconds + AWS_POLL_SECONDS) * tasks_a_second
    known = Estimates(busy_seconds=seconds * 100, ended=100.0, occupied_short=load, occupied_long=load)
    since = NOW - busy_for
    memory = ScalingMemory(saturation=Saturation(since, since, frozenset({"w1", "w2"})), estimates=known)
    decision = decided(busy("w1"), busy("w2"), memory=memory)

    assert decision.sentinel.polls == polls
    assert polls or (decision.look_again_in or 9.0) <= 2.0 - busy_for


@pytest.mark.parametrize(
    "spec",
    [{"maxWorkers": 2}, {"replicas": 2}, {"paused": True}, {"activation": {"mode": "None"}, "minWorkers": 1}],
    ids=["at maxWorkers", "pinned", "paused", "mode None"],
)
def test_operator_does_not_poll_beside_workers_that_may_not_become_more(spec: dict[str, Any]) -> None:
    assert decided(busy("w1"), busy("w2"), **spec).sentinel.polls == 0


def test_more_polls_follow_only_while_answers_come_at_once() -> None:
    assert decided(busy("w1"), source=SourceFacts(held=8, at_once=3)).sentinel.polls == BURST_POLLS
    assert decided(busy("w1"), source=SourceFacts(held=8, at_once=0)).sentinel.polls == RESTING_POLLS


def test_open_empty_poll_proves_that_a_few_quick_answers_are_new_tasks() -> None:
    opened = NOW - EMPTY_SECONDS
    few = SourceFacts(held=8, at_once=3, oldest_poll_at=opened)
    many = SourceFacts(held=10, at_once=4, oldest_poll_at=opened)

    assert decided(busy("w1"), source=few).sentinel.polls == RESTING_POLLS
    assert decided(busy("w1"), source=many).sentinel.polls == BACKLOG_POLLS


def test_workers_wanted_are_those_of_running_and_leased_tasks() -> None:
    assert decided(busy("w1"), busy("w2"), source=SourceFacts(held=30, at_once=9)).size.desired == 32


def test_leases_never_exceed_the_slots_that_may_still_start() -> None:
    order = decided(busy("w1"), busy("w2"), source=SourceFacts(held=30, at_once=9), maxWorkers=34).sentinel

    assert (order.take, order.polls) == (32, 2)


def test_worker_that_cannot_poll_does_not_prove_that_no_task_waits() -> None:
    broken = worker("w2", poll_trouble=CANNOT_POLL)

    assert decided(busy("w1"), broken).sentinel.polls == RESTING_POLLS


@pytest.mark.parametrize(("idle_seconds", "polls"), [(1.0, RESTING_POLLS), (5.0, 0)])
def test_first_seconds_of_a_worker_are_no_evidence(idle_seconds: float, polls: int) -> None:
    joiner = worker("w2", idle_seconds=idle_seconds, answers=0)

    assert decided(busy("w1"), joiner).sentinel.polls == polls


def test_joining_worker_without_a_task_begins_no_growth() -> None:
    decision = decided(worker("w2", idle_seconds=1.0, answers=0), memory=ScalingMemory())

    assert (decision.sentinel.polls, decision.memory.saturation) == (0, None)


def test_one_long_task_is_one_pod() -> None:
    harness = PoolHarness(pool_spec(maxWorkers=50), proven=True)
    harness.truth.arrive(1, 1000.0)
    harness.run(900.0)

    assert (harness.truth.made, len(harness.busy())) == (1, 1)


def test_sixty_four_tasks_beside_one_busy_worker_are_counted_in_seconds() -> None:
    load = load_of("sentinel", maxWorkers=100, minWorkers=1)
    load.seconds = 600.0
    load.run(10)
    load.arrive(1)
    load.run(5)
    load.arrive(64)
    load.run(16)

    assert max(load.sizes) == 65, load.sizes


def test_quick_answers_count_no_more_once_the_polls_after_them_stay_open() -> None:
    ago = NOW - EMPTY_SECONDS
    after = SourceFacts(held=8, at_once=9, open_polls=2, oldest_poll_at=ago, observed_at=ago)

    assert decided(busy("w1"), busy("w2"), source=after).sentinel.polls == RESTING_POLLS
    for change in ({"observed_at": NOW - 0.1}, {"open_polls": 1}):
        going_on = replace(after, **change)
        assert decided(busy("w1"), busy("w2"), source=going_on).sentinel.polls > RESTING_POLLS
