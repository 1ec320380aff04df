"""The sentinel's order: how many polls the operator keeps open for a pool: at zero, and while every worker is busy."""

from dataclasses import replace

from activity_operator.api.spec import PoolSpec
from activity_operator.core import backlog, freeze, probing, target_wait
from activity_operator.core.count_pace import count_pace
from activity_operator.core.decision import Breaker, Limit, ScalingMemory, SentinelOrder, Size
from activity_operator.core.situation import Situation

#: Open polls at rest. A dropped poll gets no answer for up to a minute, so a second one is open.
RESTING_POLLS = 2
#: The most open polls after a task has arrived, to take a burst at once.
BURST_POLLS = 10
#: The most open polls while a backlog of Step Functions is certain. The leases are bounded, so more polls at a time
#: are no more calls: they only count sooner.
BACKLOG_POLLS = 20
#: Rounds of polls between two decisions while all are answered at once: a round takes about 0.08 s, and a raise of the
#: size is written after a quarter of a second.
ROUNDS_AHEAD = 3
#: The most leases that the operator holds for one pool. By then its workers start, and their own polls take the rest.
POOL_LEASES = 200

#: Rules that stop growth: no further worker starts, so no lease is taken for one.
_GROWTH_STOPS = frozenset({Limit.UNPREPARED, Limit.DOUBT, Limit.IDLE, Limit.CRASHING, Limit.MUTE})

#: Rules of the user that may set the size to zero although a task waits.
_USERS_RULES = frozenset({Limit.PAUSED, Limit.PIN, Limit.MAX, Limit.SCHEDULE, Limit.FREEZE, Limit.RECOMMEND})


def plan_sentinel(
    situation: Situation, breaker: Breaker, size: Size, memory: ScalingMemory, *, proven: bool
) -> SentinelOrder:
    """Return the number of polls and the most leases to hold. There are no polls while a worker is idle or none may be.

    A revision without a report yet gets one poll and one lease: leasing a task starts time limits that the operator
    cannot see. A proven revision leases the tasks for which slots are starting, and one round of polls (BURST_POLLS)
    beyond them, or three larger ones (BACKLOG_POLLS) while a backlog is certain, because the leases of that round start
    slots. It gets two polls for each leased task: a burst needs few rounds, and after a single task few polls compete
    with the worker's own. Beside workers there are the resting polls while every worker is busy, and more only while
    polls are answered at once.
    """
    order = _planned(situation, breaker, size, memory, proven=proven)
    pace = count_pace(situation, size) if situation.spec.source_kind == "swf" else order.pace
    remembers = probing.own_poll_error(situation) is not None
    suspended = not size.desired and size.limit in _USERS_RULES
    preflight = _asks_for_activity(situation)
    return replace(order, preflight=preflight, pace=pace, remembers=remembers, suspended=suspended)


def _asks_for_activity(situation: Situation) -> bool:
    """Return whether the operator asks for the activity or the domain: not for a paused, refused or deleted pool."""
    spec, observation = situation.spec, situation.observation
    forbidden = spec.paused or observation.refusal or observation.pool.deleting
    return spec.on_aws and not forbidden


def _planned(
    situation: Situation, breaker: Breaker, size: Size, memory: ScalingMemory, *, proven: bool
) -> SentinelOrder:
    spec, observation = situation.spec, situation.observation
    most = spec.max_workers if spec.replicas is None else min(spec.replicas, spec.max_workers)
    take = _most_leases(situation, size, most, memory) if proven else 1
    watched = backlog.asks_prometheus(situation)
    if not _may_poll(situation, breaker, size, memory) or not most:
        return SentinelOrder(0, take, counts=backlog.counts_source(situation), watched=watched)
    taken = observation.source.held + observation.source.claimed
    counts = backlog.counts_source(situation)
    if not proven:
        return SentinelOrder(0 if taken else 1, 1, counts=counts, watched=watched)
    polls = min(BACKLOG_POLLS if _counts_backlog(situation) else BURST_POLLS, max(RESTING_POLLS, 2 * taken))
    if situation.fleet.working and not probing.tasks_wait(situation):
        polls = RESTING_POLLS
    return SentinelOrder(max(0, min(polls, take - taken)), take, counts=counts, watched=watched)


def _may_poll(situation: Situation, breaker: Breaker, size: Size, memory: ScalingMemory) -> bool:
    """Whether the operator polls: the pool is at zero, or every worker is busy and another may start.

    An operator that was refused beside its workers also asks while some are idle, once a minute: otherwise the status
    would say it until all workers are busy again.
    """
    spec, observation = situation.spec, situation.observation
    forbidden = spec.paused or observation.refusal or observation.pool.deleting
    if not _is_polled(spec) or spec.activation.mode != "Sentinel" or forbidden:
        return False
    if not situation.fleet.working:
        return not breaker.open and (size.desired > 0 or not _may_not_grow(situation, size))
    grows = size.limit not in _GROWTH_STOPS | {Limit.BREAKER} and not _may_not_grow(situation, size)
    refused = probing.own_poll_error(situation) is not None
    return grows and (refused or probing.probes(situation, memory.saturation, memory.estimates))


def _is_polled(spec: PoolSpec) -> bool:
    """Whether the operator itself may poll the source. A task list is polled at zero only: workers beside it count."""
    return spec.source_kind == "stepFunctions" or (spec.swf is not None and spec.swf.poll_at_zero)


def _most_leases(situation: Situation, size: Size, most_workers: int, memory: ScalingMemory) -> int:
    """Return the most leases: for the slots that start now, for those of the next round, and at least one at zero.

    A slot that starts takes several tasks within the target wait if they are short. Busy slots need no lease.
    """
    spec, fleet = situation.spec, situation.fleet
    each = target_wait.tasks_for_slot(spec, memory.estimates)
    taken = situation.observation.source.held + situation.observation.source.claimed
    slots = max(size.desired - len(fleet.stalled), 0) * spec.slots_per_worker
    ahead = 0 if size.limit in _GROWTH_STOPS or _may_not_grow(situation, size) else _leases_ahead(situation)
    wanted = max((slots - fleet.inflight) * each, taken if ahead else 0) + ahead
    room = max(most_workers * spec.slots_per_worker - fleet.inflight, 0) * each
    return max(min(wanted, room, POOL_LEASES), 0 if fleet.working else 1)


def _leases_ahead(situation: Situation) -> int:
    """Return the leases beyond the starting slots: one round of polls, or those until the next decision in a burst.

    With one round, the polls of a burst would stop until the decision about it.
    """
    return BACKLOG_POLLS * ROUNDS_AHEAD if _counts_backlog(situation) else BURST_POLLS


def _counts_backlog(situation: Situation) -> bool:
    """Whether polls count a backlog: many tasks wait. The quota of Amazon SWF allows fewer polls."""
    return situation.spec.source_kind == "stepFunctions" and probing.many_tasks_wait(situation)


def _may_not_grow(situation: Situation, size: Size) -> bool:
    """Return whether the spec forbids growth: a lease beyond the present workers would wait for a pod in vain."""
    return freeze.stops_growth(situation.spec) or size.limit is Limit.RECOMMEND


def withheld(situation: Situation) -> str:
    """Return why the operator takes no further task for the pool, "" if no limit of leases stops it."""
    spec, source = situation.spec, situation.observation.source
    if situation.fleet.working and not probing.tasks_wait(situation):
        return ""
    if spec.max_workers * spec.slots_per_worker > POOL_LEASES <= source.held + source.claimed:
        return f"the operator holds the most leases for one pool ({POOL_LEASES}); further tasks wait at the service"
    return source.withheld
