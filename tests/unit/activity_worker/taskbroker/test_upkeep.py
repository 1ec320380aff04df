"""Upkeep, a step at a time, and as a whole against what must always hold."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from activity_worker.taskbroker.lifecycle.inflight import FailureReason, Inflight, Outcome, give_out, report
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.lifecycle.upkeep import Change, UpkeepStep, advance, is_due, requeued
from activity_worker.taskbroker.protocol.activation import OnAttemptsExceeded, RetryState, parse_activation
from tests.unit.activity_worker.taskbroker.activations import (
    GRACE,
    MAX_ATTEMPTS,
    NOW,
    DictStore,
    activation_bytes,
    pending,
)

KEPT = RetryState(0, 3, OnAttemptsExceeded.DEADLETTER)


def given_out(attempts: int = 1, **fields: Any) -> Inflight:
    return replace(give_out(pending(**fields), NOW, GRACE), attempts=attempts)


def reported(outcome: Outcome, **fields: Any) -> Inflight:
    after = report(given_out(**fields), outcome)
    assert after is not None
    return after


def advanced(step: UpkeepStep, inflight: Inflight, now: float) -> Change:
    assert is_due(step, inflight, now)
    return advance(step, inflight, now, max_attempts=MAX_ATTEMPTS, new_id="new")


def test_steps_are_in_the_order_of_the_text() -> None:
    names = ["APPEND_RETRIES", "PASS_DEADLINES", "EXPIRE", "END_DELAYS", "HANDLE_FAILURES", "REMOVE_COMPLETE"]
    assert [step.name for step in UpkeepStep] == names


def test_retry_is_appended_with_one_attempt_more_under_a_new_id() -> None:
    retry = RetryState(1, 3, delay_on_retry=20)
    asked = reported(Outcome.RETRY, retry=retry, received_at=NOW - 5, delay=5, expires=60)
    change = advanced(UpkeepStep.APPEND_RETRIES, asked, NOW + 9)
    assert change.after is not None
    assert change.after.state == ActivationState.COMPLETE
    assert change.appended is not None
    activation = parse_activation(change.appended.data)
    assert (change.appended.id, activation.id, activation.received_at) == ("new", "new", NOW + 9)
    assert activation.retry == replace(retry, attempts=2)
    assert (change.appended.state, change.appended.due_at) == (ActivationState.DELAY, NOW + 29)
    assert (change.appended.attempts, change.appended.expires_at) == (0, NOW + 69)


def test_retry_without_a_delay_drops_the_delay_of_the_first_try() -> None:
    change = advanced(UpkeepStep.APPEND_RETRIES, reported(Outcome.RETRY, delay=0), NOW)
    assert change.appended is not None
    assert change.appended.state == ActivationState.PENDING


def test_worker_replaces_the_retry_delay_and_the_most_attempts() -> None:
    given = given_out(retry=RetryState(0, 3, delay_on_retry=20))
    asked = report(given, Outcome.RETRY, max_attempts=7, retry_delay=0)
    assert asked is not None
    change = advanced(UpkeepStep.APPEND_RETRIES, asked, NOW)
    assert change.appended is not None
    activation = parse_activation(change.appended.data)
    assert (change.appended.state, activation.retry) == (ActivationState.PENDING, RetryState(1, 7, delay_on_retry=20))


def test_absurd_retry_delay_of_a_worker_is_bounded() -> None:
    asked = report(given_out(), Outcome.RETRY, retry_delay=2**64 - 1)
    assert asked is not None
    change = advanced(UpkeepStep.APPEND_RETRIES, asked, NOW)
    assert change.appended is not None
    assert change.appended.due_at == NOW + 366 * 86_400


def test_deadline_returns_the_task_without_consuming_a_retry() -> None:
    given = given_out(retry=RetryState(1, 3))
    assert given.deadline == NOW + 10 + GRACE
    assert not is_due(UpkeepStep.PASS_DEADLINES, given, given.deadline - 0.001)
    after = advanced(UpkeepStep.PASS_DEADLINES, given, given.deadline).after
    assert after == replace(given, state=ActivationState.PENDING, deadline=None)


@pytest.mark.parametrize("fields", [{"attempts": MAX_ATTEMPTS}, {"retry": RetryState(at_most_once=True)}])
def test_deadline_of_the_last_attempt_fails_the_task(fields: dict[str, Any]) -> None:
    change = advanced(UpkeepStep.PASS_DEADLINES, given_out(**fields), NOW + 60)
    assert change.after is not None
    assert (change.after.state, change.after.failure) == (ActivationState.FAILURE, FailureReason.DEADLINE)


@pytest.mark.parametrize("delay", [None, 90])
def test_task_that_no_worker_has_expires(delay: int | None) -> None:
    waiting = pending(expires=60, delay=delay)
    assert not is_due(UpkeepStep.EXPIRE, waiting, NOW + 59)
    change = advanced(UpkeepStep.EXPIRE, waiting, NOW + 60)
    assert change.after is not None
    assert (change.after.state, change.after.failure) == (ActivationState.FAILURE, FailureReason.EXPIRED)


def test_task_that_a_worker_has_does_not_expire() -> None:
    assert not is_due(UpkeepStep.EXPIRE, given_out(expires=1), NOW + 60)


def test_delayed_task_keeps_its_due_time_as_its_place() -> None:
    delayed = pending(delay=60)
    assert not is_due(UpkeepStep.END_DELAYS, delayed, NOW + 59)
    after = advanced(UpkeepStep.END_DELAYS, delayed, NOW + 75).after
    assert after == replace(delayed, state=ActivationState.PENDING)
    assert after.due_at == NOW + 60


def test_failed_task_is_a_dead_letter_if_it_asks_for_it() -> None:
    change = advanced(UpkeepStep.HANDLE_FAILURES, reported(Outcome.FAILURE, retry=KEPT), NOW + 5)
    letter = change.dead_letter
    assert letter is not None
    assert (letter.id, letter.reason, letter.attempts) == ("one", FailureReason.REPORTED, 1)
    assert (letter.added_at, letter.dead_at) == (NOW, NOW + 5)
    assert change.after is not None
    assert change.after.state == ActivationState.COMPLETE


def test_failed_task_is_discarded_by_default() -> None:
    assert advanced(UpkeepStep.HANDLE_FAILURES, reported(Outcome.FAILURE), NOW).dead_letter is None


def test_complete_task_is_removed() -> None:
    assert advanced(UpkeepStep.REMOVE_COMPLETE, reported(Outcome.COMPLETE), NOW) == Change(None)


def test_dead_letter_begins_again_under_its_id() -> None:
    fields = {"retry": replace(KEPT, attempts=2), "delay": 0, "expires": 60}
    letter = advanced(UpkeepStep.HANDLE_FAILURES, reported(Outcome.FAILURE, **fields), NOW + 5).dead_letter
    assert letter is not None
    again = requeued(letter, NOW + 1000)
    assert (again.id, again.state, again.attempts) == ("one", ActivationState.PENDING, 0)
    assert (again.due_at, again.expires_at) == (NOW + 1000, NOW + 1060)
    assert parse_activation(again.data).retry == KEPT


class Upkeep(RuleBasedStateMachine):
    """A broker over a dict: each task ends once, in one of three ways, however reports, deadlines and time mix."""

    tasks = Bundle("tasks")
    given = Bundle("given")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.store = DictStore(f"retry-{number}" for number in itertools.count())
        self.numbers = itertools.count()
        self.starts: dict[str, int] = {}

    @rule(
        target=tasks,
        delay=st.none() | st.integers(0, 30),
        expires=st.none() | st.integers(0, 30),
        once=st.booleans(),
        kept=st.booleans(),
    )
    def add(self, delay: int | None, expires: int | None, once: bool, kept: bool) -> bytes:
        exceeded = OnAttemptsExceeded.DEADLETTER if kept else OnAttemptsExceeded.DISCARD
        retry = RetryState(0, 3, exceeded, at_most_once=once)
        data = activation_bytes(f"task-{next(self.numbers)}", retry=retry, delay=delay, expires=expires)
        assert self.store.add(data, self.now)
        return data

    @rule(data=tasks)
    def add_again(self, data: bytes) -> None:
        task_id, before = parse_activation(data).id, dict(self.store.rows)
        if task_id in before:
            assert not self.store.add(data, self.now)
            assert self.store.rows == before

    @rule(target=given)
    def take(self) -> str:
        taken = self.store.take(self.now)
        if taken is None:
            assert not [row for row in self.store.rows.values() if is_ready(row, self.now)]
            return ""
        assert not taken.is_expired(self.now)
        assert taken.due_at <= self.now
        self.starts[taken.id] = self.starts.get(taken.id, 0) + 1
        assert self.starts[taken.id] <= (1 if taken.at_most_once else MAX_ATTEMPTS)
        return taken.id

    @rule(target=claims)
    def claim(self) -> Inflight | None:
        claimed = self.store.claim(self.now)
        if claimed is not None:
            self.starts[claimed.id] = self.starts.get(claimed.id, 0) + 1
            assert self.starts[claimed.id] <= (1 if claimed.at_most_once else MAX_ATTEMPTS)
        return claimed

    @rule(target=given, claimed=consumes(claims), accepted=st.booleans())
    def end_claim(self, claimed: Inflight | None, accepted: bool) -> str:
        if claimed is None:
            return ""
        if self.store.end_claim(claimed, self.now, accepted=accepted) and not accepted:
            # The worker has refused the task, so it was not started.
            self.starts[claimed.id] -= 1
            return ""
        return claimed.id

    @rule(task_id=consumes(given), outcome=st.sampled_from(Outcome))
    def report(self, task_id: str, outcome: Outcome) -> None:
        self.store.report(task_id, outcome)

    @rule(seconds=st.integers(0, 40))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def upkeep(self) -> None:
        dead = len(self.store.dead)
        before = dict(self.store.rows)
        self.store.upkeep(self.now)
        gone = [row for key, row in before.items() if key not in self.store.rows]
        appended = [key for key in self.store.rows if key not in before]
        # What is removed was complete, or failed and became a dead letter, or failed and was discarded, or was retried.
        assert len(appended) == sum(row.state == ActivationState.RETRY for row in gone)
        kept = [row for row in gone if row.keeps_dead_letter and row.state not in {"complete", "retry"}]
        assert len(self.store.dead) - dead == len(kept)

    @invariant()
    def deadline_belongs_to_workers_and_claims(self) -> None:
        for row in self.store.rows.values():
            assert (row.deadline is not None) == (row.state in {ActivationState.PROCESSING, ActivationState.CLAIMED})
            assert (row.failure is not None) == (row.state == ActivationState.FAILURE)
            assert row.attempts <= MAX_ATTEMPTS

    def teardown(self) -> None:
        # Nothing stays for ever: workers that never answer, and time.
        for _ in range(MAX_ATTEMPTS + 2):
            while self.store.take(self.now):
                pass
            self.now += 1000
            self.store.upkeep(self.now)
        assert self.store.rows == {}


def is_ready(row: Inflight, now: float) -> bool:
    return row.state == ActivationState.PENDING and not row.is_expired(now)


TestUpkeep = Upkeep.TestCase
TestUpkeep.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
