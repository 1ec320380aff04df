"""What counts of tasks scheduled and started say about a backlog: an estimate, minutes old, checked by idle workers.

A service such as CloudWatch tells how many tasks were scheduled and how many were started in each minute, a few minutes
late. From a moment at which nothing waited, what was scheduled less what was started is what waits. Such a moment is
whenever a worker that can poll has nothing to do, and every one of them is remembered: what happened before it is
void, however late it is told. Tasks whose execution ended while they waited are never counted as started, so without
such a moment the estimate may be too high; a start of one worker then ends it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from activity_operator.api.spec import PoolSpec
from activity_operator.core.fleet import Fleet, Member
from activity_operator.core.observation import Flow, Observation

#: Counts are read once a minute; after five misses they are no longer believed.
STALE_SECONDS = 300.0
#: How far the service's clock may be behind ours before a task that came after an empty moment is taken for an older.
CLOCK_SLACK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is known of the tasks that wait.

    `tasks` is None when nobody can tell. `exact` False: at least so many, and more cannot be excluded. `unknown` says
    why new work might go unnoticed: counts on which the pool relies are missing, too old or cannot be read now; ""
    when all is well or nobody asked for them. `emptied_at` is the last moment at which surely nothing waited, Unix
    seconds, 0 when none is known.
    """

    tasks: int | None = None
    exact: bool = True
    unknown: str = ""
    emptied_at: float = 0.0


def wanted(spec: PoolSpec, seen: Observation) -> bool:
    """Whether counts are to be read for the pool: only where its size depends on them and the policy allows it."""
    free = not (spec.paused or seen.refusal or seen.pool.deleting)
    return spec.activation.mode == "CloudWatch" and free and spec.replicas is None


def waiting(spec: PoolSpec, seen: Observation, fleet: Fleet, emptied_at: float) -> Waiting:
    """Return the backlog: a source's own count, else the estimate from counts where the pool relies on them.

    `emptied_at` is the last known empty moment; later ones are taken from the workers, and after a change of leader
    from the pool's status.
    """
    idle = [member for member in fleet.working if _sees_nothing(member)]
    emptied_at = max(emptied_at, seen.pool.emptied_at, *(m.said.reported_at for m in idle if m.said is not None))
    if seen.source.backlog is not None or not wanted(spec, seen):
        return Waiting(seen.source.backlog, emptied_at=emptied_at)
    counts = seen.source.counts
    if counts is None:
        return Waiting(None, exact=False, unknown="the backlog has not been read yet", emptied_at=emptied_at)
    if seen.now - counts.observed_at >= STALE_SECONDS:
        unknown = f"the backlog was last read {STALE_SECONDS:.0f} s ago or earlier"
        return Waiting(None, exact=False, unknown=unknown, emptied_at=emptied_at)
    tasks = 0 if idle else backlog(counts.flows, emptied_at)
    unknown = "the backlog cannot be read now" if seen.source.error is not None else ""
    return Waiting(tasks, exact=False, unknown=unknown, emptied_at=emptied_at)


def stale_at(spec: PoolSpec, seen: Observation) -> float | None:
    """Return the Unix time from which the counts in hand are too old, None where none are relied on."""
    counts = seen.source.counts
    return counts.observed_at + STALE_SECONDS if counts is not None and wanted(spec, seen) else None


def backlog(flows: Sequence[Flow], emptied_at: float) -> int:
    """Return the fewest tasks that wait by these counts, oldest first: what came and was not started.

    A period in which more was started than came began with a backlog that is not in the counts, so the sum is never
    less than nothing; the period of the empty moment itself counts as a whole.
    """
    tasks = 0
    for flow in flows:
        if flow.start + flow.seconds > emptied_at - CLOCK_SLACK_SECONDS:
            tasks = max(0, tasks + flow.scheduled - flow.started)
    return tasks


def _sees_nothing(member: Member) -> bool:
    """Whether a free slot's poll has been finding nothing: what waited would have been taken, and that told."""
    return member.idle and member.said is not None and member.said.poll_trouble is None
