"""PURE: what a worker reports of a task that failed: that it is tried again, or not."""

from dataclasses import dataclass

from activity_worker.task import RetryRequest
from activity_worker.taskbroker.lifecycle.inflight import Outcome
from activity_worker.taskbroker.protocol.activation import RetryState


@dataclass(frozen=True, slots=True)
class FailureReport:
    """A worker's report. `max_attempts` and `delay`, in seconds, replace those of the task; None leaves them."""

    outcome: Outcome
    max_attempts: int | None = None
    delay: int | None = None


FAILED = FailureReport(Outcome.FAILURE)


def report_of_failure(retry: RetryState | None, request: RetryRequest) -> FailureReport:
    """Return the report of a task with this retry state.

    A handler's policy says how many attempts there are in all; without one the task's `max_attempts` does. A task that
    is to run at most once is never tried again.
    """
    state = retry or RetryState()
    if state.at_most_once or not request.wanted:
        return FAILED
    terms = request.terms
    limit = state.max_attempts if terms is None else terms.attempts
    if state.attempts + 1 >= limit:
        return FAILED
    if terms is None:
        return FailureReport(Outcome.RETRY)
    return FailureReport(Outcome.RETRY, terms.attempts, terms.delay)
