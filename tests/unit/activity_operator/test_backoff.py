"""Waits between tries: doubled up to a cap, with jitter."""

from itertools import islice

import pytest

from activity_operator import backoff


def test_wait_doubles_with_each_failure_up_to_the_cap() -> None:
    assert [backoff.capped(failures, 0.5, 60.0, lambda: 1.0) for failures in (1, 2, 3, 7, 8, 10_000)] == [
        0.5,
        1.0,
        2.0,
        32.0,
        60.0,
        60.0,
    ]


@pytest.mark.parametrize(("jitter", "seconds"), [(0.0, 30.0), (0.5, 45.0), (1.0, 60.0)])
def test_jitter_shortens_the_longest_wait_by_at_most_half(jitter: float, seconds: float) -> None:
    assert backoff.capped(50, 0.5, 60.0, lambda: jitter) == seconds


def test_wait_after_throttling_is_anything_up_to_a_step() -> None:
    assert backoff.full_jitter(3, 1.0, 30.0, lambda: 0.0) == 0.0
    assert backoff.full_jitter(3, 1.0, 30.0, lambda: 1.0) == 8.0
    assert backoff.full_jitter(50, 1.0, 30.0, lambda: 1.0) == 30.0


def test_pauses_have_no_end() -> None:
    assert list(islice(backoff.pauses(1.0, 10.0, lambda: 1.0), 7)) == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


def test_two_callers_that_failed_together_wait_differently() -> None:
    assert backoff.capped(5, 1.0, 60.0) != backoff.capped(5, 1.0, 60.0)
