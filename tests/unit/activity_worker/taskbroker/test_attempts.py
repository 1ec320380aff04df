"""What a worker reports of a failed task, and which policies take which exceptions."""

import pytest

from activity_worker.errors import RetryTask
from activity_worker.handlers.retry import Retry
from activity_worker.task import RetryRequest, RetryTerms
from activity_worker.taskbroker.lifecycle.attempts import FAILED, FailureReport, report_of_failure
from activity_worker.taskbroker.lifecycle.inflight import Outcome
from activity_worker.taskbroker.protocol.activation import RetryState

WANTED = RetryRequest(wanted=True)


@pytest.mark.parametrize(("attempts", "expected"), [(0, Outcome.RETRY), (1, Outcome.RETRY), (2, Outcome.FAILURE)])
def test_policy_counts_all_attempts(attempts: int, expected: Outcome) -> None:
    request = RetryRequest(wanted=True, terms=RetryTerms(3, 60))

    report = report_of_failure(RetryState(attempts=attempts, max_attempts=99), request)

    assert report == (FAILED if expected is Outcome.FAILURE else FailureReport(Outcome.RETRY, 3, 60))


def test_task_counts_its_attempts_where_there_is_no_policy() -> None:
    assert report_of_failure(RetryState(attempts=1, max_attempts=3), WANTED) == FailureReport(Outcome.RETRY)
    assert report_of_failure(RetryState(attempts=2, max_attempts=3), WANTED) == FAILED
    assert report_of_failure(None, WANTED) == FAILED


def test_unwanted_retry_and_task_that_runs_at_most_once_fail() -> None:
    terms = RetryTerms(9)

    assert report_of_failure(RetryState(), RetryRequest(wanted=False, terms=terms)) == FAILED
    assert report_of_failure(RetryState(at_most_once=True), RetryRequest(wanted=True, terms=terms)) == FAILED


def test_policy_takes_its_exceptions_and_not_those_it_ignores() -> None:
    policy = Retry(attempts=2, on=(OSError,), ignore=(FileNotFoundError,))

    assert policy.takes(TimeoutError())
    assert not policy.takes(FileNotFoundError())
    assert not policy.takes(ValueError())
    assert Retry(attempts=2, on=(), ignore=(Exception,)).takes(RetryTask())


@pytest.mark.parametrize(("attempts", "delay"), [(0, None), (1, -1)])
def test_policy_without_attempts_or_with_a_past_delay_is_refused(attempts: int, delay: int | None) -> None:
    with pytest.raises(ValueError, match="must be"):
        Retry(attempts=attempts, delay=delay)
