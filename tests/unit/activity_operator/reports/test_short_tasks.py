"""A pool of short tasks grows as fast in a large fleet, where reports are rare, as in a small one."""

import math
from itertools import pairwise

import pytest

from tests.unit.activity_operator.reports.short_tasks import POD_START_SECONDS, ShortTasks

MAX_WORKERS = 32


@pytest.mark.parametrize(
    ("fleet", "seconds"), [(0, 1.0), (1968, 2.0), (1968, 0.3), (4968, 10.0)], ids=lambda value: f"{value:g}"
)
def test_endless_backlog_doubles_the_pool_with_each_pod_start(fleet: int, seconds: float) -> None:
    """Besides the pod start, a step takes two reports of each worker at most."""
    tasks = ShortTasks(fleet, seconds, max_workers=MAX_WORKERS)
    interval = max(1.0, (fleet + MAX_WORKERS) / 200)
    steps = math.log2(MAX_WORKERS)
    tasks.run(steps * (POD_START_SECONDS + 2.2 * interval + 3.0))

    assert tasks.replicas == MAX_WORKERS, tasks.grown
    assert len(tasks.grown) == steps + 1, tasks.grown


def test_pool_whose_slots_wait_for_each_task_is_never_doubled() -> None:
    """Each slot is free for a second between two tasks of a second: no task waits."""
    tasks = ShortTasks(968, 1.0, gap=1.0, max_workers=MAX_WORKERS)
    tasks.run(300.0)

    assert {after - before for before, after in pairwise(tasks.grown)} == {1}, "a free slot in reserve at a time"


def test_busy_pool_in_a_large_fleet_reports_early_at_a_bounded_rate() -> None:
    """Its workers change their slots 350 times a second."""
    tasks = ShortTasks(1968, 0.1, gap=0.08, max_workers=MAX_WORKERS)
    tasks.run(250.0)
    assert tasks.replicas == MAX_WORKERS
    before = tasks.reports
    tasks.run(20.0)

    assert tasks.reports - before <= 20 * (5 + MAX_WORKERS / 10) + 20
