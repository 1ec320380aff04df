"""PURE: whether large bursts follow each other within the window, so that it should keep all workers between them."""

import math
from dataclasses import dataclass, replace

from activity_operator.core.estimates import Estimates
from activity_operator.core.situation import Situation

#: Tasks that a burst has at least.
LEAST_BURST = 3
#: A burst is larger than what chance explains: of a random load of R tasks, three standard deviations up and down.
USUAL_ROOTS = 6.0
#: The share of a burst's tasks that are there again when it counts as the same burst, and the share of the window
#: since its end: a count and the reports may miss tasks for a second or two between them.
SAME_SHARE, QUIET_SHARE = 0.75, 0.25


@dataclass(frozen=True, slots=True)
class LoadSwings:
    """The last burst: its tasks, when it had that many last, and the fewest since then.

    `returned_at` is when a burst of `returned` tasks last came again, 0 if none has. Times are Unix seconds.
    """

    highest: int = 0
    highest_at: float = 0.0
    lowest: int = 0
    returned: int = 0
    returned_at: float = 0.0


NO_SWINGS = LoadSwings()


def watched(situation: Situation, tasks: int, estimates: Estimates, past: LoadSwings) -> LoadSwings:
    """Return the swings after a decision for `tasks`, which run or wait."""
    now = situation.observation.now
    window = situation.spec.scaling.scale_down.stabilization_window_seconds or 0
    quiet_seconds = now - past.highest_at
    burst = past.highest - past.lowest
    large = burst >= LEAST_BURST and burst > USUAL_ROOTS * math.sqrt(estimates.steady)
    if large and quiet_seconds < window and tasks >= past.lowest + SAME_SHARE * burst:
        if quiet_seconds >= QUIET_SHARE * window:
            return LoadSwings(tasks, now, tasks, past.highest, now)
        return replace(past, highest=tasks, highest_at=now, lowest=tasks)
    if tasks < past.highest and quiet_seconds < window:
        return replace(past, lowest=min(past.lowest, tasks))
    # Much larger bursts are others, of which none has come again.
    another = SAME_SHARE * tasks > past.returned
    return LoadSwings(tasks, now, tasks, past.returned, 0.0 if another else past.returned_at)
