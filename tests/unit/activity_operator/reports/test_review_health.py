"""When failing TokenReviews are a problem, and when the problem has ended."""

import pytest

from activity_operator.reports.review_health import ReviewHealth


@pytest.fixture
def health() -> ReviewHealth:
    return ReviewHealth()


def fail(health: ReviewHealth, *times: float) -> list[bool]:
    """Let a review fail at each of the times; return whether a problem began with it."""
    return [health.failed(at, "429") for at in times]


def test_five_failures_in_ten_seconds_are_a_problem_once(health: ReviewHealth) -> None:
    assert fail(health, 0.0, 3.0, 6.0, 9.0, 10.0, 11.0) == [False] * 4 + [True, False]
    assert health.problem(11.0) == "the API server does not answer TokenReviews: 429"


@pytest.mark.parametrize("times", [(0.0, 3.0, 6.0, 20.0), (0.0, 1.0, 2.0, 3.0, 9.9, 9.9)], ids=["few", "short"])
def test_few_failures_and_a_short_outage_are_no_problem(health: ReviewHealth, times: tuple[float, ...]) -> None:
    assert not any(fail(health, *times))
    assert health.problem(times[-1]) == ""


def test_one_answer_between_failures_starts_the_count_again(health: ReviewHealth) -> None:
    fail(health, 0.0, 3.0, 6.0, 9.0)
    health.answered(9.5)

    assert fail(health, 10.0, 12.0, 14.0, 16.0) == [False] * 4
    assert fail(health, 20.0) == [True]


def test_problem_ends_after_ten_seconds_of_answers(health: ReviewHealth) -> None:
    fail(health, 0.0, 3.0, 6.0, 9.0, 12.0)
    health.answered(13.0)
    assert health.problem(21.9)
    assert not health.problem(22.0)


def test_failure_among_the_answers_prolongs_the_problem(health: ReviewHealth) -> None:
    fail(health, 0.0, 3.0, 6.0, 9.0, 12.0)
    health.answered(13.0)
    assert fail(health, 20.0) == [False]
    health.answered(20.5)
    assert health.problem(29.9)
    assert not health.problem(30.0)


def test_pauses_of_a_single_worker_do_not_end_the_problem(health: ReviewHealth) -> None:
    fail(health, 0.0, 3.0, 6.0, 9.0, 12.0)

    assert health.problem(27.0)
    assert fail(health, 27.0) == [False]
    assert not health.problem(57.0)
