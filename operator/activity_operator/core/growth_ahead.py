"""PURE: workers for tasks that will have come when a pod that is started now is ready.

A start takes as long as several tasks, so a pool that grows by one pod for each task is late for every task. Both
rules apply only where the user sets neither a window nor a target wait.
"""

import math

from activity_operator.core.demand import Demand
from activity_operator.core.estimates import Estimates
from activity_operator.core.situation import Situation
from activity_operator.core.size_history import SizeHistory

#: The load above which its swings count: below it, a single worker more would be a large share.
LEAST_LOAD = 2.0
#: A start that is slow, in seconds. A task without a slot waits for a start, so a slow one costs more.
SLOW_START_SECONDS = 30.0
#: Slots beyond the load that is expected after a start, in standard deviations of what changes until then: for a start
#: of no time, and how many more for a slow one.
SWING_ROOTS, SLOW_SWING_ROOTS = 1.25, 0.55
#: Slots for tasks that keep coming, in square roots of the slots beyond those that the usual load explains: for a start
#: of no time, and how many more for a slow one.
RAMP_ROOTS, SLOW_RAMP_ROOTS = 1.0, 4.0
#: Longest tasks in seconds for which a busy slot is free soon, and their standard deviations, whatever the start.
SHORT_TASK_SECONDS, SHORT_TASK_ROOTS = 2.0, 1.3
#: The swings of a load of R tasks that are usual, in square roots of R.
USUAL_ROOTS = 2.0


def least_workers(situation: Situation, demand: Demand, estimates: Estimates, sizes: SizeHistory) -> tuple[int, str]:
    """Return the workers with those for the tasks to come, and why; 0 and "" where the rules do not apply.

    As in the other floors, workers that have stalled come on top of the number.
    """
    spec, fleet = situation.spec, situation.fleet
    if not situation.default_window or spec.scaling.target_wait_seconds is not None:
        return 0, ""
    asked = demand.workers - len(fleet.stalled) + fleet.silent_ready
    slots = max(_after_a_start(situation, estimates), _while_growing(situation, asked, estimates, sizes))
    workers = math.ceil(round(slots / (spec.slots_per_worker * spec.scaling.target_utilization), 9))
    return workers, f"{workers - asked} more for tasks that come while a pod starts"


def _after_a_start(situation: Situation, estimates: Estimates) -> float:
    """Return the slots that a steady load may need when a pod that is started now is ready.

    With R tasks on average, a share of those that run now still runs after the start. The others are new tasks, as many
    as come by chance.
    """
    load, start_seconds, new_share = estimates.steady, estimates.start_seconds, estimates.new_share_seconds
    if load <= LEAST_LOAD or not new_share or not start_seconds:
        return 0.0
    kept = math.exp(-start_seconds / new_share)
    coming = load + max(situation.fleet.inflight - load, 0.0) * kept
    return coming + _swing_roots(estimates) * math.sqrt(load * (1.0 - kept * kept))


def _swing_roots(estimates: Estimates) -> float:
    return SHORT_TASK_ROOTS if _are_short(estimates) else SWING_ROOTS + SLOW_SWING_ROOTS * _slowness(estimates)


def _are_short(estimates: Estimates) -> bool:
    return estimates.task_seconds is not None and estimates.task_seconds <= SHORT_TASK_SECONDS


def _slowness(estimates: Estimates) -> float:
    """Return how slow a start is, from 0 to 1."""
    return min((estimates.start_seconds or 0.0) / SLOW_START_SECONDS, 1.0)


def _while_growing(situation: Situation, workers: int, estimates: Estimates, sizes: SizeHistory) -> float:
    """Return the slots for a pool that keeps growing beyond the usual load: short tasks need no more."""
    asked = workers * situation.spec.slots_per_worker * situation.spec.scaling.target_utilization
    beyond = asked - estimates.steady - USUAL_ROOTS * math.sqrt(estimates.steady)
    growing = sizes.keeps_growing(situation.observation.now, estimates.start_seconds)
    if _are_short(estimates) or asked <= LEAST_LOAD or beyond <= 0 or not growing:
        return 0.0
    roots = RAMP_ROOTS + SLOW_RAMP_ROOTS * _slowness(estimates)
    return asked + int(roots * math.sqrt(beyond))
