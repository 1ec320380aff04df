"""How soon a changed count would change the pool's size. A source with few calls a second is counted by it."""

from activity_operator.core import backlog_estimate
from activity_operator.core.decision import CountPace, Limit, Size
from activity_operator.core.situation import Situation

#: Limits under which a higher count changes nothing.
_FULL = frozenset({Limit.MAX, Limit.PIN, Limit.PAUSED, Limit.REFUSED})


def count_pace(situation: Situation, size: Size) -> CountPace:
    """Return how much the pool needs the next count. At zero an open poll of the operator gets the first task."""
    fleet = situation.fleet
    if size.limit in _FULL or backlog_estimate.worker_is_idle(fleet):
        return CountPace.SLOW
    if fleet.serving:
        return CountPace.FAST
    swf = situation.spec.swf
    return CountPace.SLOW if swf is not None and swf.poll_at_zero else CountPace.STEADY
