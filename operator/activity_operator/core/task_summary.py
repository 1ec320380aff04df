"""What a pool's tasks did lately, for the status: coarse numbers that change seldom, and never at rest."""

from collections import Counter
from datetime import datetime, timedelta

from activity_operator.api.status import MAX_RUNTIMES, RuntimeCount, TaskSummary
from activity_operator.core.situation import Situation
from activity_operator.core.task_counts import TaskCounts
from activity_operator.core.task_window import PERIOD_SECONDS, WINDOW_SECONDS, counts_of, period_start
from activity_worker.contract.durations import quantile

#: Least seconds between two summaries of a pool.
SUMMARY_SECONDS = 300
#: A summary is replaced when one of its numbers has changed by more than the share CHANGE, or the percentage of
#: failures by more than FAILURE_CHANGE.
CHANGE, FAILURE_CHANGE = 0.25, 5


def task_summary(situation: Situation, before: TaskSummary | None, now: datetime) -> TaskSummary | None:
    """Return the summary of the last whole minutes, or the one before.

    The one before stays when no task has run or ended in this minute and the last one, so that a pool at rest writes
    nothing: not when its window empties, and not under a new leader. It also stays when it is young, or hardly differs.
    So the last summary is written within a good minute after the last task.
    """
    observation = situation.observation
    end = period_start(observation.now)
    window = tuple(period for period in observation.tasks if period.start < end)
    if not window or observation.tasks[-1].start < end - PERIOD_SECONDS:
        return before
    # A pool's first minutes are not a whole window.
    begin = max(window[0].start, end - WINDOW_SECONDS)
    counts = counts_of(window, begin, end)
    if not counts.concluded or (before is not None and now - before.at < timedelta(seconds=SUMMARY_SECONDS)):
        return before
    found = _summary(counts, end - begin, now)
    return before if before is not None and not _differs(before, found) else found


def runtimes(situation: Situation, before: tuple[RuntimeCount, ...]) -> tuple[RuntimeCount, ...]:
    """Return how many workers run each version of the worker's package; unchanged while reports are missing."""
    fleet = situation.fleet
    if fleet.unheard:
        return before
    versions = Counter(member.report.runtime for member in fleet.members if member.report and member.report.runtime)
    most = sorted(versions.items(), key=lambda item: (-item[1], item[0]))[:MAX_RUNTIMES]
    return tuple(RuntimeCount(version=version, workers=workers) for version, workers in sorted(most))


def _summary(counts: TaskCounts, seconds: float, now: datetime) -> TaskSummary:
    known = sum(counts.durations)
    return TaskSummary(
        at=now,
        per_minute=_coarse(counts.concluded * PERIOD_SECONDS / seconds),
        failed_percent=round(100 * counts.failure_share),
        mean_seconds=_coarse(counts.task_seconds / known) if known else None,
        p95_seconds=None if (p95 := quantile(counts.durations, 0.95)) is None else _coarse(p95),
        heartbeat_failures=counts.heartbeat_failures,
        last_error=counts.last_error,
    )


def _coarse(number: float) -> float:
    """Return the number with two digits."""
    return float(f"{number:.2g}")


def _differs(before: TaskSummary, after: TaskSummary) -> bool:
    pairs = (
        (before.per_minute, after.per_minute),
        (before.mean_seconds or 0.0, after.mean_seconds or 0.0),
        (before.p95_seconds or 0.0, after.p95_seconds or 0.0),
    )
    changed = any(abs(new - old) > CHANGE * max(old, new) for old, new in pairs)
    failures = abs(before.failed_percent - after.failed_percent) > FAILURE_CHANGE
    other = bool(before.heartbeat_failures) != bool(after.heartbeat_failures) or (
        after.failed_percent and before.last_error != after.last_error
    )
    return bool(changed or failures or other)
