"""Tasks by outcome: what each worker did since its last report, counted once."""

from dataclasses import replace

import pytest

from activity_operator.core.task_counts import NO_COUNTS, TaskCounts
from activity_operator.reports.worker_registry import WorkerRegistry
from activity_worker.contract import Counters, WorkerState
from tests.unit.activity_operator.reports.builders import other, report
from tests.unit.activity_operator.reports.many_pools import Operator

POOL = ("media", "resize")
FEW = Counters(received=6, succeeded=3, failed=1, task_heartbeat_failures=2, empty_polls=5, busy_seconds=4.0)
MORE = replace(FEW, received=9, succeeded=5, failed=2, empty_polls=6, busy_seconds=6.5)


class Totals(WorkerRegistry):
    """A registry that adds up what it counts."""

    def __init__(self) -> None:
        self.total = NO_COUNTS
        super().__init__(lambda *_: None, jitter=lambda: 0.0, on_counts=self._add)

    def _add(self, key: tuple[str, str], counts: TaskCounts) -> None:
        assert key == POOL
        self.total += counts


@pytest.fixture
def registry() -> Totals:
    registry = Totals()
    registry.begin_term(0.0, 1)
    return registry


def test_first_report_of_a_new_worker_counts_in_full(registry: Totals) -> None:
    registry.record(report(sequence=1, counters=FEW), 100.0)

    assert registry.total == TaskCounts(6, 3, 1, 2, 5, 4.0, 4.0)


def test_next_report_counts_the_difference(registry: Totals) -> None:
    registry.record(report(sequence=1, counters=FEW), 100.0)
    registry.record(report(sequence=2, counters=MORE), 102.0)

    assert registry.total == TaskCounts(9, 5, 2, 2, 6, 6.5, 8.0)


def test_report_that_arrives_twice_counts_once(registry: Totals) -> None:
    for _ in range(2):
        registry.record(report(sequence=1, counters=FEW), 100.0)

    assert registry.total.received == 6


def test_restarted_container_adds_its_new_counters(registry: Totals) -> None:
    registry.record(report(sequence=50, counters=Counters()), 99.0)
    registry.record(report(sequence=51, counters=FEW), 100.0)
    registry.record(report(incarnation="second", sequence=3, counters=Counters(received=2, failed=1)), 101.0)

    assert (registry.total.received, registry.total.succeeded, registry.total.failed) == (8, 3, 2)


def test_late_report_of_the_former_container_counts_nothing(registry: Totals) -> None:
    registry.record(report(sequence=1, counters=FEW), 100.0)
    registry.record(report(incarnation="second", sequence=1), 101.0)
    registry.record(report(sequence=2, counters=MORE), 102.0)

    assert registry.total.received == 6


def test_new_leader_takes_the_first_report_as_base_line(registry: Totals) -> None:
    registry.record(report(sequence=40, counters=FEW), 100.0)
    assert registry.total == NO_COUNTS

    registry.record(report(sequence=41, counters=MORE), 101.0)
    assert (registry.total.received, registry.total.succeeded, registry.total.failed) == (3, 2, 1)


def test_second_term_of_a_process_counts_nothing_twice(registry: Totals) -> None:
    registry.record(report(sequence=1, counters=FEW), 100.0)
    registry.begin_term(200.0, 1)
    registry.record(report(sequence=90, counters=MORE), 201.0)

    assert registry.total.received == 6


def test_decreased_counter_takes_nothing_away(registry: Totals) -> None:
    registry.record(report(sequence=1, counters=MORE), 100.0)
    before = registry.total
    registry.record(report(sequence=2, counters=FEW), 100.0)

    assert registry.total == before


def test_worker_that_goes_leaves_its_counts_in_the_pool(registry: Totals) -> None:
    registry.record(report(sequence=1, counters=FEW), 100.0)
    registry.forget("uid-a")
    registry.record(other(counters=Counters(received=1)), 101.0)

    assert registry.total.received == 7


@pytest.mark.parametrize(
    ("state", "slot_seconds"), [(WorkerState.RUNNING, 20.0), (WorkerState.DRAINING, 10.0), (WorkerState.STARTING, 10.0)]
)
def test_free_slots_count_only_while_a_worker_runs(registry: Totals, state: WorkerState, slot_seconds: float) -> None:
    """The worker has two slots, of which one has a task."""
    registry.record(report(sequence=1, state=state, busy=1), 100.0)
    registry.record(report(sequence=2, state=state, busy=1, counters=Counters(busy_seconds=10.0)), 110.0)

    assert (registry.total.busy_seconds, registry.total.slot_seconds) == (10.0, slot_seconds)


async def test_wired_operator_exports_what_a_worker_reports() -> None:
    async with Operator(1).running() as operator:
        said = report(namespace="team", pool="pool-0", pod_uid="uid-x", sequence=1, counters=FEW)
        operator.components.reports.record(said, 0.0)
        text = operator.metrics.render().decode()

    assert 'activitypool_tasks_total{activitypool="pool-0",namespace="team",outcome="failed"} 1\n' in text
    assert 'activitypool_tasks_total{activitypool="pool-0",namespace="team",outcome="succeeded"} 3\n' in text
