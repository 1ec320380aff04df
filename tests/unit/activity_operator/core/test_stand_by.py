"""Idle workers without a count: some poll, and the others stand by, so that they can leave without a poll's minute."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.core.backlog import Backlog
from activity_operator.core.decide import decide
from activity_operator.core.decision import ScalingMemory
from activity_operator.core.drain import choose_victims
from activity_operator.core.estimates import NO_ESTIMATES, Estimates
from activity_operator.core.observation import SourceFacts, SourceProblem, WorkerFacts
from activity_operator.core.poll_errors import poll_error
from activity_operator.core.saturation import Saturation
from activity_operator.core.situation import situation_of
from activity_operator.core.stand_by import (
    LEAST_POLLS,
    OPENED_SECONDS,
    OWN_POLL_SECONDS,
    opened_at,
    polls_wanted,
    recheck_times,
    standing_by,
)
from activity_worker.contract import Directive, PollFault, PollTrouble, WorkerState
from tests.unit.activity_operator.core.builders import NOW, busy, members, names, observed, pending, pool, worker
from tests.unit.activity_operator.core.pool_harness import PoolHarness, pool_spec

IDLE = tuple(worker(f"w{number}") for number in range(5))
NO_POLL: dict[str, Any] = {"open_polls": 0}


def stands_by(
    *reports: Any, backlog: int | None = None, source: SourceFacts | None = None, arrivals: float = 0.0, **spec: Any
) -> set[str]:
    """Return the UIDs of the workers that stand by."""
    situation = situation_of(pool(**spec), observed(*reports, source=source or SourceFacts()))
    estimates = replace(NO_ESTIMATES, arrivals=arrivals)
    return set(standing_by(situation, Backlog(backlog, exact=backlog is None), estimates))


def test_two_of_five_idle_workers_poll_and_the_others_stand_by() -> None:
    assert stands_by(*IDLE) == {"w2", "w3", "w4"}


def test_workers_with_open_polls_go_on_polling() -> None:
    idle = [worker("w0", **NO_POLL), worker("w1", **NO_POLL), worker("w2"), worker("w3")]

    assert stands_by(*idle) == {"w0", "w1"}


def test_more_workers_poll_while_tasks_arrive() -> None:
    assert stands_by(*IDLE, arrivals=0.2) == {"w3", "w4"}
    assert stands_by(*IDLE, arrivals=4.0) == set()


def test_each_free_slot_counts_as_a_poll() -> None:
    wide = [worker(f"w{number}", slots=4, busy=2, open_polls=2) for number in range(3)]

    assert stands_by(*wide, slotsPerWorker=4) == {"w1", "w2"}


def test_busy_worker_stands_by_after_its_task_while_others_poll() -> None:
    assert stands_by(busy("w0"), worker("w1"), worker("w2")) == {"w0"}
    assert stands_by(busy("w0"), worker("w1")) == set()


def test_starting_worker_stands_by_from_the_start_while_others_poll() -> None:
    starting = worker("w5", state=WorkerState.STARTING, **NO_POLL)

    assert stands_by(*IDLE[:2], starting, pending("w6")) == {"w5", "w6"}


@pytest.mark.parametrize(
    "changes",
    [
        {"source": SourceFacts(at_once=4, observed_at=NOW)},
        {"backlog": 1},
        {"activation": {"mode": "None"}, "minWorkers": 1},
        {"paused": True},
        {"replicas": 5},
    ],
    ids=["answered at once", "counted backlog", "mode None", "paused", "pinned"],
)
def test_no_worker_stands_by_where_it_could_miss_a_task(changes: dict[str, Any]) -> None:
    assert stands_by(*IDLE, **changes) == set()


def test_worker_stands_by_while_the_operator_polls_for_its_pool() -> None:
    """What the operator's poll brings could not reach a worker that polls, for up to a minute."""
    open_poll = SourceFacts(open_polls=1, newest_poll_at=NOW - 10.0)

    assert stands_by(busy("w0"), source=open_poll) == {"w0"}
    assert stands_by(busy("w0"), source=SourceFacts()) == set()
    assert stands_by(*IDLE, source=open_poll, arrivals=0.2) == {"w1", "w2", "w3", "w4"}


def test_worker_polls_again_before_the_poll_of_the_operator_ends() -> None:
    opened = NOW - OWN_POLL_SECONDS
    young = SourceFacts(open_polls=2, oldest_poll_at=opened - 4.0, newest_poll_at=opened + 1.0)
    old = SourceFacts(open_polls=2, oldest_poll_at=opened - 4.0, newest_poll_at=opened)

    assert stands_by(IDLE[0], source=old) == set()
    assert stands_by(IDLE[0], source=young) == {"w0"}
    assert list(recheck_times(situation_of(pool(), observed(IDLE[0], source=young)), NO_ESTIMATES)) == [NOW + 1.0]


def test_pool_is_decided_again_once_an_ordered_poll_is_open() -> None:
    """No event tells that the operator has opened a poll. The busy worker is to stand by before its task ends."""
    spec, seen = pool(), observed(busy("w0", answers=1), leader_since=NOW - 900)
    known = Estimates(at=NOW - 5, running=1)
    full = Saturation(NOW - 5, NOW - 5, frozenset({"w0"}))
    ordered = decide(spec, seen, ScalingMemory(saturation=full, estimates=known))

    assert ordered.sentinel.polls == 2
    assert ordered.directives == {"w0": Directive.RUN}
    assert ordered.look_again_in == OPENED_SECONDS[0]
    source = SourceFacts(open_polls=1, newest_poll_at=NOW)
    opened = decide(spec, replace(seen, now=NOW + OPENED_SECONDS[0], source=source), ordered.memory)
    assert opened.directives == {"w0": Directive.STANDBY}


def test_pool_is_decided_again_when_the_next_own_poll_may_be_open() -> None:
    """The second of two polls opens half a minute after the first one, and the next one when that one has ended."""
    situation = situation_of(pool(), observed(busy("w0"), source=SourceFacts(open_polls=1, newest_poll_at=NOW - 9)))

    later = OPENED_SECONDS[0]
    assert list(opened_at(situation, 2, 0.0)) == [NOW + 21 + later, NOW + 51 + later]
    assert not list(opened_at(situation, 0, 0.0))
    assert not list(opened_at(situation_of(pool(), observed(pending())), 2, NOW))


def decisions_in(seconds: float, source: SourceFacts) -> int:
    """Return how often a pool with an idle worker is decided while nothing changes but the time."""
    memory, now, decisions = ScalingMemory(), NOW, 0
    while now < NOW + seconds:
        report = worker("w0", reported_at=now)
        decision = decide(pool(), observed(report, now=now, leader_since=NOW - 900, source=source), memory)
        memory, decisions = decision.memory, decisions + 1
        now += decision.look_again_in or seconds
    return decisions


def test_pool_whose_polls_do_not_open_is_not_decided_again_and_again() -> None:
    """The service refuses them, or throttles them without a word yet."""
    denied = SourceProblem("AccessDenied", "denied", NOW - 100)

    assert decisions_in(120, SourceFacts(error=denied, poll_error=denied)) <= 8
    assert decisions_in(120, SourceFacts()) <= 10


def test_worker_that_polls_in_vain_does_not_count_as_a_poll() -> None:
    failing = replace(IDLE[0], poll_trouble=PollTrouble(PollFault.DENIED, "AccessDeniedException"))

    assert stands_by(failing, *IDLE[1:]) == {"w3", "w4"}


def test_worker_whose_polls_failed_goes_on_until_one_succeeds() -> None:
    """After an outage two workers poll again first. The others stood by, and counted as failing until replaced."""
    trouble = PollTrouble(PollFault.UNREACHABLE, "no answer")
    failing = [replace(one, poll_trouble=trouble, **NO_POLL) for one in IDLE[2:]]
    polls = SourceFacts(open_polls=1, newest_poll_at=NOW - 10.0)

    assert stands_by(*IDLE[:2], *failing) == set()
    assert stands_by(*IDLE[:2], *failing, source=polls) == {"w0", "w1"}


def test_worker_that_is_just_being_drained_opens_no_poll_for_the_others() -> None:
    idle = [replace(one, **NO_POLL) for one in IDLE[:3]]
    situation = situation_of(pool(), observed(*idle))
    leaving = frozenset({"w0", "w1"})

    assert standing_by(situation, Backlog(), NO_ESTIMATES) == {"w2"}
    assert standing_by(situation, Backlog(), NO_ESTIMATES, leaving) == set()


def test_refused_worker_is_no_fault_of_a_pool_whose_others_stand_by() -> None:
    """They get what the operator's polls bring. A refused worker alone, or beside a failing operator, is a fault."""
    refused = replace(IDLE[0], poll_trouble=PollTrouble(PollFault.THROTTLED, "ThrottlingException"), **NO_POLL)
    others = [replace(one, **NO_POLL) for one in IDLE[1:]]
    polls = SourceFacts(open_polls=2, newest_poll_at=NOW - 10.0)
    failing = replace(polls, error=SourceProblem("AccessDenied", "denied", NOW))

    assert poll_error(situation_of(pool(), observed(refused, *others, source=polls))) is None
    assert poll_error(situation_of(pool(), observed(refused, busy("w9"), source=polls))) is not None
    assert poll_error(situation_of(pool(), observed(refused, *others, source=failing))) is not None
    assert poll_error(situation_of(pool(), observed(refused, *others))) is not None


def test_worker_that_reports_seldom_does_not_stand_by() -> None:
    seldom = [replace(one, interval_seconds=5.0) for one in IDLE]

    assert stands_by(*seldom) == set()


def test_worker_that_stands_by_goes_on_while_reports_are_slower() -> None:
    slower = [replace(one, interval_seconds=2.1) for one in IDLE]

    assert stands_by(*slower[:2], *(replace(one, **NO_POLL) for one in slower[2:])) == {"w2", "w3", "w4"}
    assert stands_by(*slower) == set()


def test_workers_of_a_full_pool_stand_by_once_two_polls_stay_open() -> None:
    """The operator opens no poll at maxWorkers: only polls of workers follow its last quick answers."""
    last = SourceFacts(at_once=9, observed_at=NOW - 10.0)
    free = [worker(f"w{number}", idle_seconds=5.0) for number in range(2)]

    assert stands_by(*free, busy("w2"), source=last) == {"w2"}
    assert stands_by(free[0], busy("w2"), source=last) == set()
    own = replace(last, open_polls=1, oldest_poll_at=NOW - 10.0, newest_poll_at=NOW - 10.0)
    assert stands_by(free[0], busy("w2"), source=own) == {"w0", "w2"}
    assert stands_by(*free, busy("w2"), source=replace(last, observed_at=NOW - 0.1)) == set()
    assert stands_by(*free, busy("w2"), source=replace(last, observed_at=NOW - 4.0)) == set()


def test_fewer_poll_as_soon_as_the_rate_of_tasks_has_fallen() -> None:
    estimates = Estimates(at=NOW, arrivals=4.0)
    situation = situation_of(pool(), observed(*IDLE))
    (at,) = recheck_times(situation, estimates)

    assert polls_wanted(_decayed(estimates, at - NOW)) == polls_wanted(estimates) - 1
    assert polls_wanted(_decayed(estimates, at - NOW - 0.1)) == polls_wanted(estimates)
    assert not list(recheck_times(situation, replace(estimates, arrivals=0.05)))


def _decayed(estimates: Estimates, seconds: float) -> Estimates:
    return replace(estimates, arrivals=estimates.arrivals * 2.718281828 ** (-seconds / 5.0))


def test_workers_that_stand_by_leave_before_those_that_poll() -> None:
    idle: list[WorkerFacts] = [worker("w1", idle_seconds=90.0), worker("w2", idle_seconds=5.0, **NO_POLL)]

    assert names(choose_victims(members(*idle), 1)) == ["w2"]


def test_directive_to_stand_by_reaches_only_serving_workers() -> None:
    harness = PoolHarness(pool_spec(minWorkers=4))
    decision = harness.run(120.0)
    orders = sorted(decision.directives.values())

    assert orders == [Directive.RUN] * LEAST_POLLS + [Directive.STANDBY] * 2
