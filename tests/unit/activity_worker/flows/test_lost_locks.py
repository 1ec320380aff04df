"""A job without a lock has lost it only when every look for long enough found it so."""

from activity_worker.flows.lost_locks import NOBODY

JOB = ("shop", "a", "1")
OTHER = ("shop", "a", "2")


def test_a_job_that_was_just_taken_is_not_lost() -> None:
    seen = NOBODY.looked([JOB], now=10.0)

    assert seen.lost(10.0, gap_seconds=5.0) == []
    assert seen.looked([JOB], now=14.9).lost(14.9, gap_seconds=5.0) == []


def test_a_job_without_a_lock_for_long_enough_is_lost() -> None:
    seen = NOBODY.looked([JOB], now=10.0).looked([JOB, OTHER], now=12.0).looked([JOB, OTHER], now=15.0)

    assert seen.lost(15.0, gap_seconds=5.0) == [JOB]


def test_one_look_that_finds_a_lock_begins_the_time_again() -> None:
    seen = NOBODY.looked([JOB], now=10.0).looked([], now=12.0).looked([JOB], now=15.0)

    assert seen.lost(15.0, gap_seconds=5.0) == []
    assert seen.lost(20.0, gap_seconds=5.0) == [JOB]


def test_whoever_was_dealt_with_is_under_no_suspicion_when_it_is_taken_again() -> None:
    seen = NOBODY.looked([JOB, OTHER], now=10.0).without([JOB]).looked([JOB, OTHER], now=15.0)

    assert seen.lost(15.0, gap_seconds=5.0) == [OTHER]
