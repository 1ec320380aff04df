"""When silence is attributed to the report path instead of the workers."""

from dataclasses import replace

from activity_operator.core.observation import WorkerFacts
from activity_operator.reports.report_path import RECOVERY_SECONDS, Silence, new_term_problem, report_path_problem
from activity_worker.contract import WorkerState


def worker(reported_at: float, interval: float = 1.0, state: WorkerState = WorkerState.RUNNING) -> WorkerFacts:
    return WorkerFacts(
        pod_uid=f"uid-{reported_at}",
        incarnation="first",
        state=state,
        slots=1,
        busy=0,
        open_polls=1,
        idle_seconds=0.0,
        reported_at=reported_at,
        interval_seconds=interval,
    )


def test_silence_of_more_than_half_the_workers_degrades_the_report_path() -> None:
    fleet = [worker(100.0), worker(101.0), worker(100.5), worker(199.0), worker(199.5)]

    assert "3 of 5 workers" in report_path_problem(200.0, fleet)


def test_silence_of_half_the_workers_is_attributed_to_them() -> None:
    fleet = [worker(100.0), worker(101.0), worker(100.5), worker(199.0), worker(199.5), worker(199.7)]

    assert not report_path_problem(200.0, fleet)


def test_silence_that_begins_at_different_times_is_attributed_to_workers() -> None:
    fleet = [worker(100.0), worker(400.0), worker(700.0), worker(999.5)]

    assert not report_path_problem(1000.0, fleet)


def test_silence_of_two_workers_does_not_degrade_the_report_path() -> None:
    assert not report_path_problem(200.0, [worker(100.0), worker(100.2)])


def test_silence_begins_after_three_report_intervals() -> None:
    fleet = [worker(100.0, interval=50.0), worker(101.0, interval=50.0), worker(102.0, interval=50.0)]

    assert not report_path_problem(200.0, fleet)
    assert report_path_problem(260.0, fleet)


def test_stopped_workers_do_not_count_as_silent() -> None:
    stopped = [worker(100.0 + second, state=WorkerState.STOPPED) for second in range(5)]

    assert not report_path_problem(500.0, [*stopped, worker(499.5)])


def test_report_path_stays_degraded_while_workers_return_one_by_one() -> None:
    """Otherwise a pool would replace the half of its workers whose reports return last."""
    fleet = [worker(100.0), worker(101.0), worker(199.0), worker(199.2), worker(199.5)]
    ended_silences = [replace(one, ended=199.0) for began in (100.2, 100.4, 100.8) if (one := Silence(began, 1.0))]

    assert not report_path_problem(200.0, fleet)
    assert "5 of 5" in report_path_problem(200.0, fleet, ended_silences)
    assert not report_path_problem(200.0, [worker(199.0)] * 5, ended_silences), "no worker is silent any more"
    assert not report_path_problem(199.0 + RECOVERY_SECONDS, fleet[:2] + [worker(218.5)] * 3, ended_silences)


def test_new_term_degrades_the_report_path_for_two_intervals() -> None:
    assert "has led for less than 20 s" in new_term_problem(119.0, 100.0, 10.0, expected_workers=3)
    assert not new_term_problem(120.0, 100.0, 10.0, expected_workers=3)


def test_new_term_without_workers_does_not_degrade_the_report_path() -> None:
    assert not new_term_problem(100.1, 100.0, 1.0, expected_workers=0)
