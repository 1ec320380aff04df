"""The sentinel's order: how many polls the operator keeps open for a pool that has nobody to poll for it."""

from activity_operator.core import backlog
from activity_operator.core.decision import Breaker, SentinelOrder
from activity_operator.core.situation import Situation

#: Open polls at rest: one dropped poll can block the others for a minute, so one alone is not enough.
RESTING_POLLS = 2
#: Open polls at most after a hit, to take a burst at once.
BURST_POLLS = 10


def plan_sentinel(situation: Situation, breaker: Breaker, *, proven: bool) -> SentinelOrder:
    """Return polls and the most leases to hold; none while somebody works, or when nobody may.

    A revision that never had a worker report gets one poll and one lease: a task taken early starts clocks that we
    cannot see. A proven one takes what comes, up to what the pool may run: two polls for each task that came, so that a
    burst is taken in a few rounds and a single task leaves few polls open that compete with its worker's.
    """
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
