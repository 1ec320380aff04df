"""How long a task may wait for a slot that becomes free, and so how many tasks share a slot."""

import math

from activity_operator.api.spec import PoolSpec
from activity_operator.core.estimates import Estimates

#: The default of `scaling.targetWaitSeconds` in measured starts of a pod. With a whole start, the last tasks of a burst
#: wait for more than two starts where the operator's polls have to count them first.
WAIT_STARTS = 0.6
#: Longest default of `scaling.targetWaitSeconds`: with slow pods a wait as long as a start would be too long.
LONGEST_WAIT_SECONDS = 10.0
#: The usual swings of a load of R tasks, in square roots of R: fewer busy slots than that beyond R work for new tasks.
SWING_ROOTS = 2.0


def target_wait_seconds(spec: PoolSpec, estimates: Estimates) -> float:
    """Return how long a task may wait for a slot that becomes free, beyond a pod's start; 0 starts pods at once."""
    if spec.scaling.target_wait_seconds is not None:
        return float(spec.scaling.target_wait_seconds)
    return min(WAIT_STARTS * (estimates.start_seconds or 0.0), LONGEST_WAIT_SECONDS)


def tasks_for_slot(spec: PoolSpec, estimates: Estimates) -> int:
    """Return how many tasks a slot that becomes free takes within the target wait, one after the other: at least 1."""
    task_seconds = estimates.task_seconds
    if not task_seconds:
        return 1
    return 1 + int(target_wait_seconds(spec, estimates) / task_seconds)


def late_tasks(spec: PoolSpec, estimates: Estimates, waiting: int, busy: int, spare: int) -> int:
    """Return how many of the waiting tasks the present workers cannot begin within the target wait.

    `busy` slots end a task each meanwhile; new tasks, as many as in the last seconds, take the `spare` slots, whose
    polls are open, and then those. Slots beyond the usual swings of the load end further short tasks.
    """
    task_seconds = estimates.task_seconds
    if not task_seconds or waiting <= 0:
        return max(waiting, 0)
    each = target_wait_seconds(spec, estimates) / task_seconds
    coming = max(estimates.fast * min(each, 1.0) - spare, 0.0)
    first = int(max(busy * min(each, 1.0) - coming, 0.0))
    beyond = max(busy - estimates.fast - SWING_ROOTS * math.sqrt(estimates.fast), 0.0)
    return max(waiting - first - int(beyond * max(each - 1.0, 0.0)), 0)
