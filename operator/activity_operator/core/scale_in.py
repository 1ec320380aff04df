"""How far a pool may shrink at once: a floor by its recent load, a dead band against turns, and the spec's steps."""

import math
from collections.abc import Iterator
from dataclasses import replace

from activity_operator.core.estimates import Estimates
from activity_operator.core.situation import Situation
from activity_operator.core.size_history import STEP_SECONDS, SizeHistory
from activity_operator.core.stabilize import Stable

#: The load above which the floor applies: below it, a single worker more would be a large share.
LEAST_LOAD = 2.0
#: Workers beyond a load of R in the floor, in square roots of R: growth ahead of the need covers the larger swings.
SPARE_ROOTS = 1.5
#: Share of a window that fades for which no worker leaves after growth: what has just started serves the next burst.
GROWN_SHARE = 0.5
#: Least seconds from the beginning of a fall to that of the next one, so that a size turns at most 120 times an hour;
#: seconds after growth in which a small surplus stays.
TURN_SECONDS = 60.0
#: A surplus of at most this share of the size, and of one worker at least, is small.
SMALL_SHARE = 0.1
#: Seconds until the next decision while the floor falls with the load: no event tells that.
FLOOR_SECONDS = 2.0


def limited(situation: Situation, stable: Stable, estimates: Estimates, before: SizeHistory) -> Stable:
    """Return the stabilized size, or the least one that these rules allow now if that is higher."""
    bounds = [(stable.workers, stable.held_by), (_step_bound(situation, before), "the steps of scaling.scaleDown")]
    if situation.default_window and before.last is not None:
        bounds.append((min(_floor(situation, estimates), before.last), "the load of the last minutes"))
        bounds.append((_without_turn(situation, before, stable.workers), "a small surplus for a minute after growth"))
        bounds.append((_just_grown(situation, stable, before), "growth of the last seconds"))
        bounds.append((_just_fallen(situation, before), "the minute between two falls"))
    workers, held_by = max(bounds, key=lambda bound: bound[0])
    return replace(stable, workers=workers, held_by=held_by)


def recheck_times(situation: Situation, estimates: Estimates, before: SizeHistory) -> Iterator[float]:
    """Yield the Unix times at which time alone can lower the least size."""
    down = situation.spec.scaling.scale_down
    if down.max_pods_per_minute is not None or down.max_percent is not None:
        yield from (at + STEP_SECONDS for at, _ in before.sizes)
    if situation.default_window:
        yield before.grown_at + TURN_SECONDS
        yield before.grown_at + _grown_seconds(situation)
        if not before.falls:
            yield before.fell_at + TURN_SECONDS
        yield situation.fades_from
        if _floor(situation, estimates) and (before.last or 0) * situation.spec.slots_per_worker > estimates.running:
            yield situation.observation.now + FLOOR_SECONDS


def _floor(situation: Situation, estimates: Estimates) -> int:
    load = estimates.steady
    if load <= LEAST_LOAD:
        return 0
    spec = situation.spec
    return math.ceil((load + SPARE_ROOTS * math.sqrt(load)) / (spec.slots_per_worker * spec.scaling.target_utilization))


def _without_turn(situation: Situation, before: SizeHistory, workers: int) -> int:
    last = before.last or 0
    small = last - workers <= max(1, int(SMALL_SHARE * last))
    recent = situation.observation.now - before.grown_at < TURN_SECONDS
    return last if workers and small and recent else 0


def _just_grown(situation: Situation, stable: Stable, before: SizeHistory) -> int:
    """Return the highest size of the window, as if it did not fade, for a while after growth."""
    if situation.observation.now - before.grown_at >= _grown_seconds(situation):
        return 0
    return min(before.last or 0, max((number for _, number in stable.recommendations), default=0))


def _just_fallen(situation: Situation, before: SizeHistory) -> int:
    """Return the last size where the size has grown since it began to fall, less than a minute ago."""
    recent = situation.observation.now - before.fell_at < TURN_SECONDS
    return before.last or 0 if recent and not before.falls else 0


def _grown_seconds(situation: Situation) -> float:
    window = situation.spec.scaling.scale_down.stabilization_window_seconds or 0
    return GROWN_SHARE * window if situation.window_fades else 0.0


def _step_bound(situation: Situation, before: SizeHistory) -> int:
    """Return the least size by the steps of the spec; the stricter of two steps applies."""
    since, down = situation.observation.now - STEP_SECONDS, situation.spec.scaling.scale_down
    last = before.last or 0
    highest = max([size for at, size in before.sizes[:-1] if at > since] + [last])
    steps = [] if down.max_pods_per_minute is None else [down.max_pods_per_minute]
    if down.max_percent is not None:
        steps.append(max(math.ceil(highest * down.max_percent / 100), 1))
    return min(highest - min(steps, default=highest), last)
