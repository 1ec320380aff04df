"""`scaling.idleWorkers`: workers beyond those that the tasks need, so that the next tasks find a slot at once."""

import math

from activity_operator.core.demand import Demand
from activity_operator.core.situation import Situation


def least_workers(situation: Situation, demand: Demand) -> tuple[int, str]:
    """Return the workers for all known tasks plus the reserve, and why; 0 and "" without the option.

    A free slot that the pool keeps to notice the next task is a part of the reserve.
    """
    idle = situation.spec.scaling.idle_workers
    if not idle:
        return 0, ""
    per_worker = situation.spec.slots_per_worker * situation.spec.scaling.target_utilization
    return math.ceil(round(demand.tasks / per_worker, 9)) + idle, f"scaling.idleWorkers keeps {idle} more"
