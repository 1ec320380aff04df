"""How many tasks wait, from all who can tell: the source's own count, who watches it, an estimate from its history.

A count by the source itself is exact and beats the others, which may only ask for more. What a pool relies on and
nobody can tell is unknown, and unknown is not zero.
"""

from dataclasses import dataclass

from activity_operator.api.spec import PoolSpec
from activity_operator.core import counts
from activity_operator.core.fleet import Fleet
from activity_operator.core.observation import Observation
from activity_operator.core.signal import Signal

#: Exact counts are read several times a second; after half a minute without one they are no longer believed.
EXACT_STALE_SECONDS = 30.0
#: Those of others come once a minute at the slowest, whatever was asked for; after five misses they are not believed.
BOUND_STALE_SECONDS = 300.0
_NOT_YET = "the backlog has not been read yet"
_NOT_NOW = "the backlog cannot be read now"


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is known of the tasks that wait.

    `tasks` is None when nobody can tell. `exact` False: at least so many, and more cannot be excluded. `unknown` says
    why new work might go unnoticed: a count on which the pool relies is missing, too old or cannot be read now; ""
    when all is well or nobody asked for one. `emptied_at` is the last moment at which surely nothing waited, Unix
    seconds, 0 when none is known.
    """

    tasks: int | None = None
    exact: bool = True
    unknown: str = ""
    emptied_at: float = 0.0


def wanted(spec: PoolSpec, seen: Observation) -> bool:
    """Whether the source is to be counted for the pool: where its size depends on it and the policy allows it."""
    if spec.source_kind == "stepFunctions":
        return spec.activation.mode == "CloudWatch" and spec.replicas is None and _free(spec, seen)
    return spec.activation.mode != "None" and _free(spec, seen)


def watched(spec: PoolSpec, seen: Observation) -> bool:
    """Whether somebody else is to be asked what waits at the source."""
    return spec.scaling.prometheus is not None and _free(spec, seen)


def _free(spec: PoolSpec, seen: Observation) -> bool:
    return not (spec.paused or seen.refusal or seen.pool.deleting)


def waiting(spec: PoolSpec, seen: Observation, fleet: Fleet, emptied_at: float) -> Waiting:
    """Return the backlog. `emptied_at` is the last known empty moment; later ones are taken from the workers."""
    exact, unknown = _exact(spec, seen)
    emptied_at = counts.emptied(seen, fleet, emptied_at)
    bounds = [found for found in (_bound(spec, seen), _estimate(spec, seen, fleet, emptied_at)) if found is not None]
    unknown = unknown or next((why for _, why in bounds if why), "")
    least = max((tasks for tasks, _ in bounds if tasks is not None), default=None)
    if exact is None:
        return Waiting(least, exact=not (bounds or unknown), unknown=unknown, emptied_at=emptied_at)
    # A bound may count tasks that run or are held by now.
    more = (least or 0) - fleet.inflight - seen.source.held - seen.source.claimed
    return Waiting(max(exact, more), unknown=unknown, emptied_at=emptied_at)


def stale_at(spec: PoolSpec, seen: Observation) -> float | None:
    """Return the next Unix time from which something in hand is too old, else the last one that was.

    None where nothing is relied on, and where news go on: who reads tells when it cannot.
    """
    counted = seen.source.counts
    times = [] if counted is None or not wanted(spec, seen) else [counted.observed_at + counts.STALE_SECONDS]
    if seen.source.error is not None:
        times += [one.observed_at + _limit(exact=one.exact) for one in seen.source.signals]
    return min((at for at in times if at > seen.now), default=max(times, default=None))


def _exact(spec: PoolSpec, seen: Observation) -> tuple[int | None, str]:
    """Return the source's own count, and why it is missing where it is relied on."""
    tasks, why = _told(seen, exact=True)
    return tasks, why if spec.source_kind != "stepFunctions" and wanted(spec, seen) else ""


def _bound(spec: PoolSpec, seen: Observation) -> tuple[int | None, str] | None:
    """Return what somebody else counted, and why that is missing; None where nobody is asked."""
    return _told(seen, exact=False) if watched(spec, seen) else None


def _estimate(spec: PoolSpec, seen: Observation, fleet: Fleet, emptied_at: float) -> tuple[int | None, str] | None:
    """Return the estimate from counts of what came and was started; None where it is not asked for."""
    if spec.source_kind != "stepFunctions" or not wanted(spec, seen):
        return None
    counted = seen.source.counts
    if counted is None:
        return None, _NOT_YET
    if seen.now - counted.observed_at >= counts.STALE_SECONDS:
        return None, f"the backlog was last read {counts.STALE_SECONDS:.0f} s ago or earlier"
    tasks = 0 if counts.sees_nothing(fleet) else counts.backlog(counted.flows, emptied_at)
    return tasks, _NOT_NOW if seen.source.error is not None else ""


def _told(seen: Observation, *, exact: bool) -> tuple[int | None, str]:
    """Return the fresh count of this kind, and why there is none."""
    since = seen.now - _limit(exact=exact)
    told = (_waiting(one, seen) for one in seen.source.signals if one.exact is exact and one.observed_at > since)
    tasks = max(told, default=None)
    return tasks, "" if tasks is not None else _missing(seen, exact=exact)


def _missing(seen: Observation, *, exact: bool) -> str:
    """Return why there is no fresh count."""
    who = "the backlog" if exact else "Prometheus' count of the backlog"
    if any(one.exact is exact for one in seen.source.signals):
        return f"{who} was last read {_limit(exact=exact):.0f} s ago or earlier"
    return (_NOT_NOW if seen.source.error is not None else _NOT_YET).replace("the backlog", who)


def _waiting(signal: Signal, seen: Observation) -> int:
    """Return the tasks that wait. One that runs and that nobody reports is a dead worker's, and waits for another."""
    running = sum(worker.busy for worker in seen.workers) if signal.with_running else 0
    return max(signal.tasks - running, 0)


def _limit(*, exact: bool) -> float:
    return EXACT_STALE_SECONDS if exact else BOUND_STALE_SECONDS
