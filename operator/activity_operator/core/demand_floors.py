"""From the demand of the tasks to the demand of the options: the highest of them applies, before any window."""

from dataclasses import replace

from activity_operator.core import idle_reserve, throughput
from activity_operator.core.decision import Limit
from activity_operator.core.demand import Demand
from activity_operator.core.situation import Situation


def raised(situation: Situation, demand: Demand) -> Demand:
    """Return the demand, raised by `scaling.idleWorkers` or `scaling.throughput` if one of them asks for more.

    Both are part of the demand, so that the stabilization window also covers the end of a task or of a busy minute.
    """
    fleet = situation.fleet
    floors = (
        (Limit.RESERVE, *idle_reserve.least_workers(situation, demand)),
        (Limit.THROUGHPUT, *throughput.least_workers(situation)),
    )
    limit, workers, why = max(floors, key=lambda floor: floor[1])
    # A stalled worker is no capacity, as in the demand of the tasks.
    workers += len(fleet.stalled) - fleet.silent_ready
    if not why or workers <= demand.workers:
        return demand
    return replace(demand, workers=workers, limit=limit, reason=f"{demand.reason}; {why}")
