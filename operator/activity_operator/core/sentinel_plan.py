"""The sentinel's order: how many polls the operator keeps open for a pool without a working worker."""

from dataclasses import replace

from activity_operator.core import backlog, freeze
from activity_operator.core.count_pace import count_pace
from activity_operator.core.decision import Breaker, Limit, SentinelOrder, Size
from activity_operator.core.situation import Situation

#: Open polls at rest. A dropped poll gets no answer for up to a minute, so a second one is open.
RESTING_POLLS = 2
#: The most open polls after a task has arrived, to take a burst at once.
BURST_POLLS = 10
#: The most leases that the operator holds for one pool. By then its workers start, and their own polls take the rest.
POOL_LEASES = 100

#: Rules that stop growth: no further worker starts, so no lease is taken for one.
_GROWTH_STOPS = frozenset({Limit.UNPREPARED, Limit.DOUBT, Limit.IDLE, Limit.CRASHING, Limit.MUTE})


def plan_sentinel(situation: Situation, breaker: Breaker, size: Size, *, proven: bool) -> SentinelOrder:
    """Return the number of polls and the most leases to hold. There are no polls while a worker works or none may.

    A revision without a report yet gets one poll and one lease: leasing a task starts time limits that the operator
    cannot see. A proven revision leases a task for each slot that is starting, and one round of polls (BURST_POLLS)
    beyond them, because each lease of that round starts a slot. It gets two polls for each leased task: a burst needs
    few rounds, and after a single task few polls compete with the worker's own.
    """
    order = _planned(situation, breaker, size, proven=proven)
    pace = count_pace(situation, size) if situation.spec.source_kind == "swf" else order.pace
    return replace(order, preflight=_asks_for_activity(situation), pace=pace)


def _asks_for_activity(situation: Situation) -> bool:
    """Return whether the operator asks for the activity or the domain: not for a paused, refused or deleted pool."""
    spec, observation = situation.spec, situation.observation
    forbidden = spec.paused or observation.refusal or observation.pool.deleting
    return spec.source_kind in {"stepFunctions", "swf"} and not forbidden


def _planned(situation: Situation, breaker: Breaker, size: Size, *, proven: bool) -> SentinelOrder:
    spec, observation = situation.spec, situation.observation
    most = spec.max_workers if spec.replicas is None else min(spec.replicas, spec.max_workers)
    take = _most_leases(situation, size, most) if proven else 1
    forbidden = spec.paused or most == 0 or observation.refusal or observation.pool.deleting or breaker.open
    forbidden = forbidden or (not size.desired and _may_not_grow(situation, size))
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


def _most_leases(situation: Situation, size: Size, most_workers: int) -> int:
    """Return the most leases for the workers that start now, for those of the next round, and at least one."""
    slots = situation.spec.slots_per_worker
    starting = max(size.desired - len(situation.fleet.stalled), 0) * slots
    ahead = 0 if size.limit in _GROWTH_STOPS or _may_not_grow(situation, size) else BURST_POLLS
    return max(min(starting + ahead, most_workers * slots, POOL_LEASES), 1)


def _may_not_grow(situation: Situation, size: Size) -> bool:
    """Return whether the spec forbids growth: a lease beyond the present workers would wait for a pod in vain."""
    return freeze.stops_growth(situation.spec) or size.limit is Limit.RECOMMEND


def withheld(situation: Situation) -> str:
    """Return why the operator takes no further task for the pool, "" if no limit of leases stops it."""
    spec, source = situation.spec, situation.observation.source
    if situation.fleet.working:
        return ""
    if spec.max_workers * spec.slots_per_worker > POOL_LEASES <= source.held + source.claimed:
        return f"the operator holds the most leases for one pool ({POOL_LEASES}); further tasks wait at the service"
    return source.withheld
