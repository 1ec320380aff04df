"""When the report path is doubted rather than the workers."""

from dataclasses import replace

from activity_operator.core.observation import WorkerFacts
from activity_operator.workers.suspicion import RECOVERY_SECONDS, Silence, new_term_doubt, report_path_doubt
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


def test_more_than_half_falling_silent_together_is_doubted() -> None:
    fleet = [worker(100.0), worker(101.0), worker(100.5), worker(199.0), worker(199.5)]

    assert "3 of 5 workers" in report_path_doubt(200.0, fleet)


def test_half_falling_silent_is_believed() -> None:
    fleet = [worker(100.0), worker(101.0), worker(100.5), worker(199.0), worker(199.5), worker(199.7)]

    assert not report_path_doubt(200.0, fleet)


def test_workers_that_hang_one_by_one_are_believed() -> None:
    fleet = [worker(100.0), worker(400.0), worker(700.0), worker(999.5)]

    assert not report_path_doubt(1000.0, fleet)


def test_two_pods_lost_with_their_node_prove_nothing() -> None:
    assert not report_path_doubt(200.0, [worker(100.0), worker(100.2)])


def test_silence_shorter_than_three_intervals_is_no_silence() -> None:
    fleet = [worker(100.0, interval=50.0), worker(101.0, interval=50.0), worker(102.0, interval=50.0)]

    assert not report_path_doubt(200.0, fleet)
    assert report_path_doubt(260.0, fleet)


def test_workers_that_said_goodbye_are_not_missed() -> None:
    gone = [worker(100.0 + second, state=WorkerState.STOPPED) for second in range(5)]

    assert not report_path_doubt(500.0, [*gone, worker(499.5)])


def test_while_the_first_are_heard_again_the_others_are_not_given_up() -> None:
    """Otherwise a pool would replace, as its reports come back, the half of its workers that come last."""
    fleet = [worker(100.0), worker(101.0), worker(199.0), worker(199.2), worker(199.5)]
    heard_again = [replace(one, ended=199.0) for began in (100.2, 100.4, 100.8) if (one := Silence(began, 1.0))]

    assert not report_path_doubt(200.0, fleet)
    assert "5 of 5" in report_path_doubt(200.0, fleet, heard_again)
    assert not report_path_doubt(200.0, [worker(199.0)] * 5, heard_again), "nobody is silent any more"
    assert not report_path_doubt(199.0 + RECOVERY_SECONDS, fleet[:2] + [worker(218.5)] * 3, heard_again)


def test_a_new_term_gives_workers_two_intervals_to_find_the_new_leader() -> None:
    assert "has led for less than 20 s" in new_term_doubt(119.0, 100.0, 10.0, expected_workers=3)
    assert not new_term_doubt(120.0, 100.0, 10.0, expected_workers=3)


def test_a_new_term_without_any_worker_doubts_nothing() -> None:
    assert not new_term_doubt(100.1, 100.0, 1.0, expected_workers=0)
