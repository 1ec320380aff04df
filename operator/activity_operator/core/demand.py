"""From tasks to workers: what the work asks for, before any limit."""

import math
from dataclasses import dataclass

from activity_operator.api.spec import PoolSpec
from activity_operator.core.fleet import Fleet
from activity_operator.core.observation import Observation

#: Seconds for which every slot must be busy before the pool grows without a count.
SATURATED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Demand:
    """How many workers the work asks for, and the sentence that says so."""

    workers: int
    tasks: int
    reason: str
    saturated_since: float | None = None


def demand(spec: PoolSpec, seen: Observation, fleet: Fleet, saturated_since: float | None) -> Demand:
    """Return the workers for `inflight + leases held + backlog`, more on saturation where the source cannot count.

    A source without a count shows a backlog only by leaving nobody idle. So while tasks run, one free slot is kept as
    the eye that sees there is no more; when every slot stays busy, the pool doubles, once per observed start.
    """
    held = seen.source.held + seen.source.claimed
    tasks = fleet.inflight + held + (seen.source.backlog or 0)
    per_worker = spec.slots_per_worker * spec.scaling.target_utilization
    workers = math.ceil(round(tasks / per_worker, 9))
    reason = _sentence(fleet.inflight, held, seen.source.backlog)
    if seen.source.backlog is None:
        since = _saturated(fleet, seen.now, saturated_since)
        if since is not None and seen.now - since >= SATURATED_SECONDS:
            grown = 2 * len(fleet.working)
            if grown > workers and len(fleet.working) == len(fleet.serving):
                reason = f"all {len(fleet.working)} workers are busy: doubling"
                return Demand(grown + len(fleet.stalled), tasks, reason, since)
            workers = max(workers, len(fleet.serving))
        elif fleet.inflight:
            workers = max(workers, fleet.inflight // spec.slots_per_worker + 1)
        return Demand(workers + len(fleet.stalled), tasks, reason, since)
    return Demand(workers + len(fleet.stalled), tasks, reason)


def _saturated(fleet: Fleet, now: float, since: float | None) -> float | None:
    """Return since when no working member has had an idle slot, None when one has or nobody works.

    Tasks in flight are not asked for: a pool of one worker has none between two tasks of a backlog.
    """
    if not fleet.working or any(member.idle for member in fleet.working):
        return None
    return now if since is None else since


def _sentence(inflight: int, held: int, backlog: int | None) -> str:
    parts = [f"{inflight} running", f"{held} held"]
    if backlog is not None:
        parts.append(f"{backlog} waiting")
    return ", ".join(parts)
