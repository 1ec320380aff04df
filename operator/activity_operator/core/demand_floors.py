"""From the demand of the tasks to that of growth ahead and of options: the highest applies, before any window."""

from dataclasses import replace

from activity_operator.core import growth_ahead, idle_reserve, throughput
from activity_operator.core.decision import Limit, ScalingMemory
from activity_operator.core.demand import Demand
from activity_operator.core.situation import Situation


def raised(situation: Situation, demand: Demand, memory: ScalingMemory) -> Demand:
    """Return the demand, raised by growth ahead, `scaling.idleWorkers` or `scaling.throughput` if one asks for more.

    All are part of the demand, so that the stabilization window also covers the end of a task or of a busy minute.
    """
    fleet = situation.fleet
    floors = (
        (demand.limit, *growth_ahead.least_workers(situation, demand, memory.estimates, memory.sizes)),
        (Limit.RESERVE, *idle_reserve.least_workers(situation, demand)),
        (Limit.THROUGHPUT, *throughput.least_workers(situation)),
    )
    limit, workers, why = max(floors, key=lambda floor: floor[1])
    # A stalled worker is no capacity, as in the demand of the tasks.
    workers += len(fleet.stalled) - fleet.silent_ready
    if not why or workers <= demand.workers:
        return demand
    return replace(demand, workers=workers, limit=limit, reason=f"{demand.reason}; {why}")
