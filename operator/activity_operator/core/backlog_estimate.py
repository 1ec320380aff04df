"""A backlog estimate from the numbers of scheduled and started tasks. It is minutes old; idle workers correct it.

CloudWatch reports, a few minutes late, how many tasks were scheduled and how many were started in each minute. The
backlog is the number scheduled minus the number started since the last moment at which the backlog was empty. The
backlog is empty whenever a worker that can poll is idle, so counts from before that moment are dropped, also those
that arrive later. A task whose execution ended while the task waited never counts as started, so the estimate may be
too high until the pool starts one worker and that worker is idle.
"""

from collections.abc import Sequence

from activity_operator.core.fleet import Fleet, Member
from activity_operator.core.observation import MetricPeriod
from activity_operator.core.situation import Situation

#: Seconds after which the counts are stale. They are read once a minute, so five reads have failed by then.
STALE_SECONDS = 300.0
#: Seconds by which the service's clock may be behind ours. Beyond it, a new task may seem older than the empty moment.
CLOCK_SLACK_SECONDS = 60.0


def last_emptied_at(situation: Situation, before: float) -> float:
    """Return the last moment at which the backlog was certainly empty, Unix seconds, 0 if no such moment is known.

    It is the latest of `before` (the value of the last decision), the pool's status (which survives a change of
    leader) and the reports of idle workers.
    """
    idle = [
        member.report.reported_at
        for member in situation.fleet.working
        if polls_without_task(member) and member.report is not None
    ]
    return max(before, situation.observation.pool.emptied_at, *idle)


def worker_is_idle(fleet: Fleet) -> bool:
    """Whether a worker that can poll is idle."""
    return any(polls_without_task(member) for member in fleet.working)


def estimated_backlog(flows: Sequence[MetricPeriod], emptied_at: float) -> int:
    """Return the least number of waiting tasks by these counts (oldest first): scheduled minus started.

    The sum never falls below 0: a period with more starts than scheduled tasks worked off an older backlog. The period
    that contains `emptied_at` counts as a whole.
    """
    tasks = 0
    for flow in flows:
        if flow.start + flow.seconds > emptied_at - CLOCK_SLACK_SECONDS:
            tasks = max(0, tasks + flow.scheduled - flow.started)
    return tasks


def polls_without_task(member: Member) -> bool:
    """Whether a free slot polls and gets no task. The slot would have leased a waiting task and reported it."""
    return member.idle and member.report is not None and member.report.poll_trouble is None
