"""An activation is admitted, given out and reported."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from activity_worker.taskbroker.lifecycle.inflight import (
    MAX_SPAN_SECONDS,
    AdmissionError,
    FailureReason,
    Inflight,
    Outcome,
    claim,
    deliver,
    give_out,
    release,
    report,
)
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState, parse_activation
from tests.unit.activity_worker.taskbroker.activations import GRACE, NOW, pending


def test_task_is_pending_from_its_admission() -> None:
    inflight = pending(application="shop", processing_deadline_duration=30)
    assert (inflight.state, inflight.added_at, inflight.due_at) == (ActivationState.PENDING, NOW, NOW)
    assert (inflight.application, inflight.deadline_seconds, inflight.attempts) == ("shop", 30, 0)
    assert parse_activation(inflight.data).received_at == NOW


def test_delay_and_expiry_count_from_the_time_of_receipt() -> None:
    inflight = pending(received_at=NOW - 5, delay=60, expires=90)
    assert (inflight.state, inflight.due_at, inflight.expires_at) == (ActivationState.DELAY, NOW + 55, NOW + 85)


def test_delay_that_is_over_at_admission_is_none() -> None:
    inflight = pending(received_at=NOW - 60, delay=60)
    assert (inflight.state, inflight.due_at) == (ActivationState.PENDING, NOW)


def test_task_without_a_deadline_has_ten_seconds() -> None:
    assert pending().deadline_seconds == 10


def test_retry_state_decides_about_dead_letters_and_second_starts() -> None:
    kept = pending(retry=RetryState(0, 1, OnAttemptsExceeded.DEADLETTER, at_most_once=True))
    assert (kept.keeps_dead_letter, kept.at_most_once) == (True, True)
    assert not pending(retry=RetryState(0, 1, OnAttemptsExceeded.DISCARD)).keeps_dead_letter
    assert not pending().keeps_dead_letter


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task_id": ""}, "id is empty"),
        ({"namespace": ""}, "namespace is empty"),
        ({"taskname": ""}, "taskname is empty"),
        ({"task_id": "x" * 256}, "id has 256 characters"),
        ({"application": "a\0b"}, "application has a NUL"),
        ({"delay": MAX_SPAN_SECONDS + 1}, "delay is 31622401"),
        ({"expires": 2**64 - 1}, "expires is"),
        ({"processing_deadline_duration": 2**63}, "processing_deadline_duration is"),
        ({"received_at": NOW * 1000}, "received_at is more than 366 days"),
    ],
)
def test_activation_that_no_store_can_keep_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(AdmissionError, match=message):
        pending(**fields)


def test_deadline_and_attempt_are_set_when_the_task_is_given_out() -> None:
    given = give_out(pending(processing_deadline_duration=30), NOW + 7, GRACE)
    assert (given.state, given.deadline, given.attempts) == (ActivationState.PROCESSING, NOW + 7 + 30 + GRACE, 1)


def test_task_is_given_out_from_pending_only() -> None:
    given = give_out(pending(), NOW, GRACE)
    with pytest.raises(ValueError, match="activation one is processing: not so when a worker is given the task"):
        give_out(given, NOW, GRACE)


def test_claim_counts_as_an_attempt_until_it_is_released() -> None:
    claimed = claim(pending(processing_deadline_duration=30), NOW, 12.0)
    assert (claimed.state, claimed.deadline, claimed.attempts) == (ActivationState.CLAIMED, NOW + 12, 1)
    delivered = deliver(claimed, NOW + 2, GRACE)
    assert delivered == replace(claimed, state=ActivationState.PROCESSING, deadline=NOW + 2 + 30 + GRACE)
    assert release(claimed) == pending(processing_deadline_duration=30)


def test_report_may_come_before_the_end_of_its_claim() -> None:
    after = report(claim(pending(), NOW, 12.0), Outcome.COMPLETE)
    assert after is not None
    assert (after.state, after.deadline) == (ActivationState.COMPLETE, None)


@pytest.mark.parametrize("end", [lambda given: deliver(given, NOW, GRACE), release])
def test_only_a_claim_is_delivered_or_released(end: Callable[[Inflight], Inflight]) -> None:
    with pytest.raises(ValueError, match="activation one is processing: not so when"):
        end(give_out(pending(), NOW, GRACE))


def test_report_ends_the_deadline() -> None:
    given = give_out(pending(), NOW, GRACE)
    assert report(given, Outcome.COMPLETE) == replace(given, state=ActivationState.COMPLETE, deadline=None)
    failed = replace(given, state=ActivationState.FAILURE, deadline=None, failure=FailureReason.REPORTED)
    assert report(given, Outcome.FAILURE) == failed
    assert report(given, Outcome.FAILURE, max_attempts=5, retry_delay=6) == failed


def test_retry_keeps_what_the_worker_asked_for() -> None:
    given = give_out(pending(), NOW, GRACE)
    after = report(given, Outcome.RETRY, max_attempts=5, retry_delay=6)
    assert after is not None
    assert (after.state, after.retry_max_attempts, after.retry_delay) == (ActivationState.RETRY, 5, 6)


def test_report_after_the_deadline_counts() -> None:
    late = replace(give_out(pending(), NOW, GRACE), state=ActivationState.PENDING, deadline=None)
    after = report(late, Outcome.COMPLETE)
    assert after is not None
    assert after.state == ActivationState.COMPLETE


def test_report_about_a_task_that_no_worker_has_had_changes_nothing() -> None:
    assert report(pending(), Outcome.COMPLETE) is None


@pytest.mark.parametrize("first", Outcome)
@pytest.mark.parametrize("second", Outcome)
def test_first_report_stands(first: Outcome, second: Outcome) -> None:
    after = report(give_out(pending(), NOW, GRACE), first)
    assert after is not None
    assert report(after, second) is None
