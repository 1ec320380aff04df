"""The sentinel's order: how many polls the operator keeps open for a pool without a working worker."""

from dataclasses import replace

from activity_operator.core import backlog
from activity_operator.core.decision import Breaker, SentinelOrder
from activity_operator.core.situation import Situation

#: Open polls at rest. A dropped poll gets no answer for up to a minute, so a second one is open.
RESTING_POLLS = 2
#: The most open polls after a task has arrived, to take a burst at once.
BURST_POLLS = 10


def plan_sentinel(situation: Situation, breaker: Breaker, *, proven: bool) -> SentinelOrder:
    """Return the number of polls and the most leases to hold. There are no polls while a worker works or none may.

    A revision without a report yet gets one poll and one lease: leasing a task starts time limits that the operator
    cannot see. A proven revision leases as many tasks as the pool can run. It gets two polls for each leased task: a
    burst needs few rounds, and after a single task few polls compete with the worker's own.
    """
    order = _planned(situation, breaker, proven=proven)
    return replace(order, preflight=_asks_for_activity(situation))


def _asks_for_activity(situation: Situation) -> bool:
    """Return whether the operator asks for the activity: not for a pool that is paused, refused or deleted."""
    spec, observation = situation.spec, situation.observation
    forbidden = spec.paused or observation.refusal or observation.pool.deleting
    return spec.source_kind == "stepFunctions" and not forbidden


def _planned(situation: Situation, breaker: Breaker, *, proven: bool) -> SentinelOrder:
    spec, observation = situation.spec, situation.observation
    most = spec.max_workers if spec.replicas is None else min(spec.replicas, spec.max_workers)
    take = most * spec.slots_per_worker if proven else 1
    forbidden = spec.paused or most == 0 or observation.refusal or observation.pool.deleting or breaker.open
    if (
        spec.source_kind != "stepFunctions"
        or spec.activation.mode != "Sentinel"
        or forbidden
        or situation.fleet.working
    ):
        return SentinelOrder(
            0, take, counts=backlog.counts_source(situation), watched=backlog.asks_prometheus(situation)
        )
    taken = observation.source.held + observation.source.claimed
    if not proven:
        return SentinelOrder(0 if taken else 1, 1, watched=backlog.asks_prometheus(situation))
    polls = min(BURST_POLLS, max(RESTING_POLLS, 2 * taken))
    return SentinelOrder(max(0, min(polls, take - taken)), take, watched=backlog.asks_prometheus(situation))
