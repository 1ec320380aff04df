"""Slow scale-down: the highest recommendation of a window applies, and zero needs proof that no work is left.

A window that the spec sets keeps its highest recommendation to its end, as Kubernetes' does. One that the operator sets
fades: a recommendation keeps less the older it is. A burst that soon comes again finds most workers, and one that does
not has paid for half of the window.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from activity_operator.api.spec import PoolSpec
from activity_operator.core import poll_errors
from activity_operator.core.demand import Demand
from activity_operator.core.situation import Situation

Recommendations = tuple[tuple[float, int], ...]

#: Steps in which a window fades, so that few writes lower the size.
FADE_STEPS = 10
#: Share of a recommendation, and one worker at least, that stays to the end of a window that fades: the random
#: swings of a load would turn the size at each step otherwise.
SMALL_SHARE = 0.1
#: Share of a step by which an age may miss it through rounding.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Stable:
    """The stabilized number of workers; `held_by` names what keeps it above the demand, "" if it equals the demand."""

    workers: int
    held_by: str
    recommendations: Recommendations
    quiet_since: float | None


def stabilized(
    situation: Situation, demand: Demand, past: Recommendations, quiet_since: float | None, last: int | None = None
) -> Stable:
    """Return the highest of four numbers: for the demand, the window, missing signals, and a zero without proof.

    `last` is the size decided last, with its limits, None before the first decision: a window keeps workers and starts
    none.
    """
    spec, observation, fleet = situation.spec, situation.observation, situation.fleet
    present = fleet.present
    unknown, blind = _unknown(situation, demand)
    # An unknown backlog never counts as quiet.
    quiet = None if unknown else _quiet_since(situation, demand, quiet_since)
    # Workers kept because of an unknown backlog enter the window as demand.
    wanted = max(demand.workers, blind)
    window = _window(situation)
    recommendations = _remember(past, observation.now, wanted, window)
    candidates = [(demand.workers, ""), (blind, f"{unknown}: unknown is not zero")]
    kept = max(_kept(situation, at, number, wanted) for at, number in recommendations)
    if last is not None:
        # The size may have been lower than its window, by a pin or a breaker, and what a window that fades keeps is
        # counted from the need, so it rises with the need.
        kept = min(kept, max(last, wanted))
    candidates.append((kept, "the stabilization window"))
    if observation.report_path_problem:
        candidates.append((present, observation.report_path_problem))
    elif observation.now - observation.leader_since < window:
        candidates.append((present, "a new leader waits one stabilization window"))
    if any(not member.never_started for member in fleet.serving) and not _zero_allowed(spec, observation.now, quiet):
        candidates.append((1 + len(fleet.stalled), _zero_reason(situation)))
    workers, held_by = max(candidates, key=lambda candidate: candidate[0])
    return Stable(workers, held_by, recommendations, quiet)


def _unknown(situation: Situation, demand: Demand) -> tuple[str, int]:
    """Return why the backlog is unknown and the number of workers to keep for it; "" and 0 if it is known.

    One working worker is enough to see whether tasks wait. All present workers stay if none of them works, or if no
    worker with a free slot can poll.
    """
    fleet = situation.fleet
    backlog = demand.backlog
    if poll_errors.poll_error(situation) is not None and (backlog.tasks is None or not backlog.exact):
        return backlog.unknown or "no worker that is free can poll", fleet.present
    if not backlog.unknown:
        return "", 0
    return backlog.unknown, 1 + len(fleet.stalled) if fleet.working else fleet.present


def falls_at(situation: Situation, recommendations: Recommendations) -> float | None:
    """Return the Unix time at which the window next keeps fewer workers, None if it keeps none."""
    if len(recommendations) < 2:
        return None
    if situation.window_fades:
        return min(_steps(situation, recommendations), default=None)
    highest = max(number for _, number in recommendations)
    last = max(at for at, number in recommendations if number == highest)
    return None if highest == recommendations[-1][1] else last + _window(situation)


def _window(situation: Situation) -> int:
    return situation.spec.scaling.scale_down.stabilization_window_seconds or 0


def _kept(situation: Situation, at: float, number: int, wanted: int) -> int:
    """Return the workers that the recommendation of `number` workers at `at` keeps, where `wanted` are needed."""
    window = _window(situation)
    if not situation.window_fades or not window or number <= wanted:
        return number
    left = 1.0 - (_step(situation, at) + 0.5) / FADE_STEPS
    fading = math.ceil(round((number - wanted) * left, 9))
    small = max(1, int(SMALL_SHARE * number))
    return wanted + max(fading, min(number - wanted, small))


def _step(situation: Situation, at: float) -> int:
    """Return how many whole steps of the window have passed since `at`."""
    return int((situation.observation.now - at) * FADE_STEPS / _window(situation) + ROUNDING)


def _steps(situation: Situation, recommendations: Recommendations) -> Iterator[float]:
    """Yield when each recommendation that is higher than the newest one reaches its next step, in Unix seconds."""
    window = _window(situation)
    for at, number in recommendations if window else ():
        if number > recommendations[-1][1]:
            yield at + (_step(situation, at) + 1) * window / FADE_STEPS


def _remember(past: Recommendations, now: float, workers: int, window_seconds: float) -> Recommendations:
    """Return the window with `workers` added, without the entries that can no longer be its maximum.

    An entry that a larger one follows can never be the maximum again. When the number falls, the previous number gets
    the time `now`: it applied until now, and the window counts from the last moment of the higher demand.
    """
    kept = [entry for entry in past if now - entry[0] < window_seconds]
    if window_seconds and past and past[-1][1] > workers:
        kept = [entry for entry in kept if entry[1] > past[-1][1]]
        kept.append((now, past[-1][1]))
    kept = [entry for entry in kept if entry[1] > workers]
    return (*kept, (now, workers))


def _quiet_since(situation: Situation, demand: Demand, since: float | None) -> float | None:
    """Return when the pool became quiet (no task runs, waits or is held; no report is missing), None if it is not."""
    observation, fleet = situation.observation, situation.fleet
    working = demand.tasks or fleet.running_tasks or fleet.stalled or observation.report_path_problem
    unheard = any(member.report is None and not member.never_started for member in fleet.members)
    if working or unheard:
        return None
    return observation.now if since is None else since


def _zero_allowed(spec: PoolSpec, now: float, quiet_since: float | None) -> bool:
    return quiet_since is not None and now - quiet_since >= (spec.scaling.scale_down.zero_after_seconds or 0)


def _zero_reason(situation: Situation) -> str:
    fleet = situation.fleet
    if fleet.stalled:
        return f"{len(fleet.stalled)} stalled worker(s): unknown is not zero"
    return f"zero needs {situation.spec.scaling.scale_down.zero_after_seconds} s without work"
