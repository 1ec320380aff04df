"""The minutes of a pool's tasks: summed by revision, dropped when old, and free for a pool at rest."""

from activity_operator.core.task_counts import TaskCounts
from activity_operator.core.task_window import WINDOW_SECONDS, counts_of
from activity_operator.reports.task_windows import TaskWindows

KEY = ("team", "pool")
ONE = TaskCounts(received=1, succeeded=1, busy_seconds=2.0)


def test_counts_of_a_minute_are_summed_by_revision() -> None:
    windows = TaskWindows()
    for now, revision in ((600.0, "a"), (659.0, "a"), (659.0, "b"), (660.0, "a")):
        windows.add(KEY, revision, ONE, now)

    found = windows.window(KEY, 660.0)
    assert [(one.start, one.revision, one.counts.received) for one in found] == [
        (600.0, "a", 2),
        (600.0, "b", 1),
        (660.0, "a", 1),
    ]
    assert counts_of(found, 600.0, 660.0).received == 3
    assert counts_of(found, 600.0, 720.0, "a").busy_seconds == 6.0


def test_old_minutes_are_dropped_and_other_pools_are_left_out() -> None:
    windows = TaskWindows()
    windows.add(KEY, "a", ONE, 0.0)
    windows.add(KEY, "a", ONE, 60.0)

    assert len(windows.window(KEY, WINDOW_SECONDS)) == 2
    assert len(windows.window(KEY, WINDOW_SECONDS + 60.0)) == 1
    assert windows.window(("team", "other"), 0.0) == ()


def test_idle_workers_add_no_minute() -> None:
    windows = TaskWindows()
    windows.add(KEY, "a", TaskCounts(empty_polls=3, slot_seconds=60.0), 0.0)

    assert windows.window(KEY, 0.0) == ()


def test_a_new_term_and_a_deleted_pool_leave_nothing() -> None:
    windows = TaskWindows()
    windows.add(KEY, "a", ONE, 0.0)
    windows.forget(KEY)
    assert windows.window(KEY, 0.0) == ()

    windows.add(KEY, "a", ONE, 0.0)
    windows.clear()
    assert windows.window(KEY, 0.0) == ()
