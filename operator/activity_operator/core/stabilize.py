"""Down slowly: the highest recommendation of a window, and zero only on proof."""

from dataclasses import dataclass

from activity_operator.api.spec import PoolSpec
from activity_operator.core import poll_errors
from activity_operator.core.demand import Demand
from activity_operator.core.situation import Situation

Recommendations = tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class Stable:
    """The damped number of workers; `held_by` names what keeps it above the demand, empty when nothing does."""

    workers: int
    held_by: str
    recommendations: Recommendations
    quiet_since: float | None


def stabilized(situation: Situation, demand: Demand, past: Recommendations, quiet_since: float | None) -> Stable:
    """Return the larger of today's demand and what the window, the zero gate or missing signals still ask for."""
    spec, observation, fleet = situation.spec, situation.observation, situation.fleet
    present = fleet.present
    unknown, blind = _unknown(situation, demand)
    # Nor is it a proof of rest, however long it lasts.
    quiet = None if unknown else _quiet_since(situation, demand, quiet_since)
    # What ignorance holds counts as wanted: the window begins when it ends.
    wanted = max(demand.workers, blind)
    recommendations = _remember(past, observation.now, wanted, spec.scaling.scale_down.stabilization_window_seconds)
    candidates = [(demand.workers, ""), (blind, f"{unknown}: unknown is not zero")]
    candidates.append((max(number for _, number in recommendations), "the stabilization window"))
    if observation.report_path_problem:
        candidates.append((present, observation.report_path_problem))
    elif observation.now - observation.leader_since < spec.scaling.scale_down.stabilization_window_seconds:
        candidates.append((present, "a new leader waits one stabilization window"))
    if any(not member.never_started for member in fleet.serving) and not _zero_allowed(spec, observation.now, quiet):
        candidates.append((1 + len(fleet.stalled), _zero_reason(situation)))
    workers, held_by = max(candidates, key=lambda candidate: candidate[0])
    return Stable(workers, held_by, recommendations, quiet)


def _unknown(situation: Situation, demand: Demand) -> tuple[str, int]:
    """Return what is not known of the work, and the workers that are kept for it: "" and none when enough is.

    Workers see for themselves that nothing waits. Where none works, or none that is free can poll, nobody does.
    """
    fleet = situation.fleet
    backlog = demand.backlog
    if poll_errors.poll_error(situation) is not None and (backlog.tasks is None or not backlog.exact):
        return backlog.unknown or "no worker that is free can poll", fleet.present
    if not backlog.unknown:
        return "", 0
    return backlog.unknown, 1 + len(fleet.stalled) if fleet.working else fleet.present


def expires(recommendations: Recommendations, window_seconds: float) -> float | None:
    """Return the Unix time at which the window's highest recommendation leaves it, None when it is the newest."""
    if len(recommendations) < 2:
        return None
    highest = max(number for _, number in recommendations)
    last = max(at for at, number in recommendations if number == highest)
    return None if highest == recommendations[-1][1] else last + window_seconds


def _remember(past: Recommendations, now: float, workers: int, window_seconds: float) -> Recommendations:
    """Return the window, thinned to what a maximum can still see.

    A smaller number that stands before a larger one can never again be the maximum. The value before the present one
    held until now, so a fall is dated from now: the window counts from the last moment at which more was wanted.
    """
    kept = [entry for entry in past if now - entry[0] < window_seconds]
    if window_seconds and past and past[-1][1] > workers:
        kept = [entry for entry in kept if entry[1] > past[-1][1]]
        kept.append((now, past[-1][1]))
    kept = [entry for entry in kept if entry[1] > workers]
    return (*kept, (now, workers))


def _quiet_since(situation: Situation, demand: Demand, since: float | None) -> float | None:
    """Return since when nothing has run, waited or been held, and every worker that reported is fresh."""
    observation, fleet = situation.observation, situation.fleet
    working = demand.tasks or fleet.running_tasks or fleet.stalled or observation.report_path_problem
    unheard = any(member.report is None and not member.never_started for member in fleet.members)
    if working or unheard:
        return None
    return observation.now if since is None else since


def _zero_allowed(spec: PoolSpec, now: float, quiet_since: float | None) -> bool:
    return quiet_since is not None and now - quiet_since >= spec.scaling.scale_down.zero_after_seconds


def _zero_reason(situation: Situation) -> str:
    fleet = situation.fleet
    if fleet.stalled:
        return f"{len(fleet.stalled)} stalled worker(s): unknown is not zero"
    return f"zero needs {situation.spec.scaling.scale_down.zero_after_seconds} s without work"
