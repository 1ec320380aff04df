"""What counts of tasks scheduled and started say about a backlog: an estimate, minutes old, checked by idle workers.

A service such as CloudWatch tells how many tasks were scheduled and how many were started in each minute, a few minutes
late. From a moment at which nothing waited, what was scheduled less what was started is what waits. Such a moment is
whenever a worker that can poll has nothing to do, and every one of them is remembered: what happened before it is
void, however late it is told. Tasks whose execution ended while they waited are never counted as started, so without
such a moment the estimate may be too high; a start of one worker then ends it.
"""

from collections.abc import Sequence

from activity_operator.core.fleet import Fleet, Member
from activity_operator.core.observation import MetricPeriod
from activity_operator.core.situation import Situation

#: Counts are read once a minute; after five misses they are no longer believed.
STALE_SECONDS = 300.0
#: How far the service's clock may be behind ours before a task that came after an empty moment is taken for an older.
CLOCK_SLACK_SECONDS = 60.0


def last_emptied_at(situation: Situation, before: float) -> float:
    """Return the last moment at which surely nothing waited: from the workers, and after a change of leader the status.

    `before` is the last one that was known, Unix seconds, 0 for none.
    """
    idle = [
        member.report.reported_at
        for member in situation.fleet.working
        if _polls_in_vain(member) and member.report is not None
    ]
    return max(before, situation.observation.pool.emptied_at, *idle)


def worker_is_idle(fleet: Fleet) -> bool:
    """Whether a worker that can poll has nothing to do."""
    return any(_polls_in_vain(member) for member in fleet.working)


def estimated_backlog(flows: Sequence[MetricPeriod], emptied_at: float) -> int:
    """Return the fewest tasks that wait by these counts, oldest first: what came and was not started.

    A period in which more was started than came began with a backlog that is not in the counts, so the sum is never
    less than nothing; the period of the empty moment itself counts as a whole.
    """
    tasks = 0
    for flow in flows:
        if flow.start + flow.seconds > emptied_at - CLOCK_SLACK_SECONDS:
            tasks = max(0, tasks + flow.scheduled - flow.started)
    return tasks


def _polls_in_vain(member: Member) -> bool:
    """Whether a free slot's poll has been finding nothing: what waited would have been taken, and that told."""
    return member.idle and member.report is not None and member.report.poll_trouble is None
