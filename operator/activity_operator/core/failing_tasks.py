"""Whether the tasks of a pool fail: by the share of the last minutes, from the workers' reports."""

from collections.abc import Iterator

from activity_operator.core.situation import Situation
from activity_operator.core.task_counts import TaskCounts
from activity_operator.core.task_window import PERIOD_SECONDS, WINDOW_SECONDS, counts_of, period_start

#: Share of failed tasks from which the tasks of a pool count as failing, and below which they no longer do.
FAILING_SHARE, RECOVERED_SHARE = 0.5, 0.25
#: Least number of concluded tasks for a judgement.
LEAST_TASKS = 5


def failing(situation: Situation, before: str) -> str:
    """Return why the tasks count as failing, "" if they do not. `before` is the last answer.

    A new leader takes the last answer from the status. The answer stays until tasks succeed again, also when no task
    comes: a pool at rest has no new evidence. The sentence has no number, so that it stays the same meanwhile.
    """
    before = before or situation.observation.pool.tasks_failing
    counts = recent_counts(situation)
    if counts.concluded < LEAST_TASKS:
        return before
    if counts.failure_share >= (RECOVERED_SHARE if before else FAILING_SHARE):
        name = counts.last_error or "an error without a name"
        return f"at least half of the tasks of the last {WINDOW_SECONDS / 60:.0f} min failed, the last one as {name}"
    return ""


def recent_counts(situation: Situation, revision: str | None = None) -> TaskCounts:
    """Return what the workers of one revision, or of all, did in the last minutes."""
    now = situation.observation.now
    return counts_of(situation.observation.tasks, period_start(now) - WINDOW_SECONDS, now + 1.0, revision)


def recheck_times(situation: Situation) -> Iterator[float]:
    """Yield when a pool at work is judged again: a report of a busy worker alone starts no decision."""
    next_period = period_start(situation.observation.now) + PERIOD_SECONDS
    if any(period.start >= next_period - 2 * PERIOD_SECONDS for period in situation.observation.tasks):
        yield next_period
