"""The summary of tasks in the status is coarse, changes seldom, and never long after the last task."""

from datetime import UTC, datetime
from typing import Any

import pytest

from activity_operator.core.decide import decide
from activity_operator.core.decision import ScalingMemory
from activity_operator.core.status import pool_status
from activity_operator.core.task_counts import TaskCounts
from activity_operator.core.task_window import TaskPeriod, TaskWindow
from activity_worker.contract.durations import PLACES, place_of
from tests.unit.activity_operator.core.builders import observed, pool, worker

#: The begin of a minute.
BEGIN = 12_000.0


def did(number: int, seconds: float = 3.0, failed: int = 0) -> TaskCounts:
    """Return the counts of a number of tasks, all of one duration."""
    durations = [0] * PLACES
    durations[place_of(seconds)] = number
    return TaskCounts(
        received=number,
        succeeded=number - failed,
        failed=failed,
        task_seconds=number * seconds,
        durations=tuple(durations),
        last_error="ValueError" if failed else "",
    )


def window(*counts: TaskCounts) -> TaskWindow:
    """Return one period a minute, from BEGIN on."""
    return tuple(TaskPeriod(BEGIN + 60 * number, "r1", one) for number, one in enumerate(counts))


def status(now: float, tasks: TaskWindow, before: dict[str, Any] | None = None, **facts: Any) -> dict[str, Any]:
    seen = observed(worker("w1", reported_at=now, **facts), now=now, tasks=tasks)
    return pool_status(pool(), seen, decide(pool(), seen, ScalingMemory()), before, ())


def test_summary_has_the_rate_the_failures_and_the_times_of_tasks() -> None:
    found = status(BEGIN + 130, window(did(20, failed=1), did(20, failed=1)))["tasks"]

    assert found == {
        "at": datetime.fromtimestamp(BEGIN + 130, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "perMinute": 20.0,
        "failedPercent": 5,
        "meanSeconds": 3.0,
        "p95Seconds": 4.8,
        "heartbeatFailures": 0,
        "lastError": "ValueError",
    }


def test_first_minute_is_summed_up_when_it_is_over() -> None:
    assert "tasks" not in status(BEGIN + 59, window(did(5)))
    assert status(BEGIN + 60, window(did(5)))["tasks"]["perMinute"] == 5.0


def test_pool_at_rest_keeps_its_last_summary_whatever_is_forgotten() -> None:
    """One task, then rest: one summary when its minute is over, and no other one ever, also by a new leader."""
    tasks, before, written = window(did(1)), status(BEGIN + 10, window(did(1))), 0
    for seconds in range(20, 3600, 20):
        seen = tuple(period for period in tasks if BEGIN + seconds - period.start < 600)
        after = status(BEGIN + seconds, seen, before)
        if after != before:
            written += 1
            assert seconds <= 60, "long after the last task"
        before = after

    assert written == 1
    assert status(BEGIN + 9000, (), before)["tasks"] == before["tasks"]


def test_steady_tasks_change_the_summary_at_most_once() -> None:
    before, writes = status(BEGIN, ()), 0
    for minute in range(1, 60):
        tasks = tuple(
            TaskPeriod(BEGIN + 60 * number, "r1", did(20 + number % 3)) for number in range(max(minute - 10, 0), minute)
        )
        after = status(BEGIN + 60 * minute, tasks, before)
        writes += after["tasks"] != before.get("tasks")
        before = after

    assert writes == 1


def test_clear_change_is_written_but_not_within_five_minutes() -> None:
    first = status(BEGIN + 60, window(did(10)))
    failing = window(did(10), did(10, failed=10), did(10, failed=10), did(10, failed=10), did(10, failed=10))

    assert status(BEGIN + 300, failing, first)["tasks"] == first["tasks"]
    later = status(BEGIN + 361, (*failing, TaskPeriod(BEGIN + 300, "r1", did(10))), first)["tasks"]
    assert (later["failedPercent"], later["lastError"]) == (67, "ValueError")


@pytest.mark.parametrize(("failed", "percent"), [(2, 4), (3, 12)])
def test_failures_are_replaced_when_changed_by_more_than_5_percent(failed: int, percent: int) -> None:
    first = status(BEGIN + 60, window(did(25, failed=1)))
    later = TaskPeriod(BEGIN + 900, "r1", did(25, failed=failed))

    assert status(BEGIN + 960, (later,), first)["tasks"]["failedPercent"] == percent


def test_worker_of_an_earlier_version_leaves_the_times_out() -> None:
    found = status(BEGIN + 60, window(TaskCounts(received=2, succeeded=2)))["tasks"]

    assert "meanSeconds" not in found
    assert "p95Seconds" not in found


def test_versions_of_the_workers_package_are_counted() -> None:
    seen = observed(*(worker(f"w{number}", runtime="0.2.0" if number else "0.1.0") for number in range(3)))
    found = pool_status(pool(), seen, decide(pool(), seen, ScalingMemory()), None, ())

    assert found["runtimes"] == [{"version": "0.1.0", "workers": 1}, {"version": "0.2.0", "workers": 2}]


def test_new_leader_keeps_the_versions_until_all_workers_have_reported() -> None:
    before = {"runtimes": [{"version": "0.1.0", "workers": 2}]}
    seen = observed(worker("w1", runtime="0.1.0"), leader_since=9_990.0)
    unheard = observed(*seen.pods, *seen.workers, pod_of("w2"), leader_since=9_990.0)
    found = pool_status(pool(), unheard, decide(pool(), unheard, ScalingMemory()), before, ())

    assert found["runtimes"] == before["runtimes"]


def pod_of(name: str) -> Any:
    return observed(worker(name)).pods[0]
