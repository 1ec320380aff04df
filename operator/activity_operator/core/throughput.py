"""`scaling.throughput`: a least size for the rate at which tasks have come.

The rate times the seconds of a task is the number of slots that were busy on average. A pool that keeps up with its
tasks has no backlog, and between two bursts no task at all: the rate keeps the workers that the next burst needs.
"""

import math

from activity_operator.core.situation import Situation
from activity_operator.core.task_window import PERIOD_SECONDS, counts_of, period_start

#: A worker is not started for a smaller share of its work than this: the measured rate is never exact.
TOLERANCE = 0.1


def least_workers(situation: Situation) -> tuple[int, str]:
    """Return the least number of workers, and why; 0 and "" without the option or without a whole period.

    Only whole periods count, and only those of this leader's term: it does not know what came before.
    """
    option = situation.spec.scaling.throughput
    if option is None:
        return 0, ""
    observation = situation.observation
    end = period_start(observation.now)
    # A term begins within a period, so the first one that it knows as a whole is the next.
    known = period_start(observation.leader_since) + PERIOD_SECONDS if observation.leader_since else 0.0
    begin = max(end - option.window_seconds // PERIOD_SECONDS * PERIOD_SECONDS, known)
    if begin >= end:
        return 0, ""
    counts = counts_of(observation.tasks, begin, end)
    rate = counts.received / (end - begin)
    busy = counts.busy_seconds / (end - begin) if option.seconds_per_task is None else rate * option.seconds_per_task
    per_worker = situation.spec.slots_per_worker * situation.spec.scaling.target_utilization
    workers = max(math.ceil(busy / per_worker - TOLERANCE), 0)
    return workers, f"{_number(rate)} tasks a second keep {_number(busy)} slots busy"


def changes_at(situation: Situation) -> float | None:
    """Return the Unix time at which time alone may change the number, None without the option or without tasks."""
    if situation.spec.scaling.throughput is None or not situation.observation.tasks:
        return None
    return period_start(situation.observation.now) + PERIOD_SECONDS


def _number(value: float) -> str:
    """Return the number with two digits, so that the sentence does not change with noise."""
    return f"{float(f'{value:.2g}'):g}"
