"""A job has lost its lock only if every look during the gap finds it without one."""

from activity_worker.flows.lost_locks import NO_JOBS, UnlockedJob

JOB = UnlockedJob("shop", "a", "1", "")
OTHER = UnlockedJob("shop", "a", "2", "3")


def test_job_that_was_just_taken_is_not_lost() -> None:
    sightings = NO_JOBS.after_look([JOB], now=10.0)

    assert sightings.lost(10.0, gap_seconds=5.0) == []
    assert sightings.after_look([JOB], now=14.9).lost(14.9, gap_seconds=5.0) == []


def test_job_without_a_lock_for_long_enough_is_lost() -> None:
    sightings = (
        NO_JOBS.after_look([JOB], now=10.0).after_look([JOB, OTHER], now=12.0).after_look([JOB, OTHER], now=15.0)
    )

    assert sightings.lost(15.0, gap_seconds=5.0) == [JOB]


def test_look_that_finds_a_lock_restarts_the_gap() -> None:
    sightings = NO_JOBS.after_look([JOB], now=10.0).after_look([], now=12.0).after_look([JOB], now=15.0)

    assert sightings.lost(15.0, gap_seconds=5.0) == []
    assert sightings.lost(20.0, gap_seconds=5.0) == [JOB]


def test_handled_job_starts_a_new_gap_when_it_is_taken_again() -> None:
    sightings = NO_JOBS.after_look([JOB, OTHER], now=10.0).without([JOB]).after_look([JOB, OTHER], now=15.0)

    assert sightings.lost(15.0, gap_seconds=5.0) == [OTHER]


def test_job_that_was_put_back_in_between_starts_a_new_gap() -> None:
    sightings = NO_JOBS.after_look([JOB], now=10.0).after_look([JOB._replace(retries="1")], now=15.0)

    assert sightings.lost(15.0, gap_seconds=5.0) == []
