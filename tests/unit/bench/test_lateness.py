"""How late heartbeats were is counted from what the service saw, and silence counts against the silent."""

from tests.bench.worker_lateness import Lateness, of_tasks


def test_a_heartbeat_is_as_late_as_its_gap_is_longer_than_the_interval() -> None:
    late = of_tasks([[0.0, 10.0, 21.5], [0.0, 9.0, 19.25]], 10.0, ended_at=22.0)

    assert late.seconds == (0.0, 0.0, 0.25, 1.5)
    assert late.later_than(1.0) == 1


def test_a_task_that_sends_none_is_late_by_what_is_overdue_at_the_end() -> None:
    assert of_tasks([[0.0]], 10.0, ended_at=35.0).seconds == (25.0,)


def test_a_heartbeat_that_is_not_due_yet_does_not_count() -> None:
    assert of_tasks([[0.0, 10.0]], 10.0, ended_at=19.9).count == 1


def test_quantiles_are_heartbeats_that_were_measured() -> None:
    late = Lateness((0.0, 1.0, 2.0, 3.0))

    assert [late.quantile(share) for share in (0.5, 0.99, 1.0)] == [1.0, 3.0, 3.0]
