"""PURE: an activation in flight: how it is admitted, given out, and what a worker's report makes of it."""

from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Final

from activity_worker.taskbroker.lifecycle.states import ActivationEvent, ActivationState, next_state
from activity_worker.taskbroker.protocol.activation import (
    Activation,
    OnAttemptsExceeded,
    activation_of,
    parse_message,
    set_received_at,
)

#: The processing deadline, in seconds, of a task that names none: the published client's default.
DEFAULT_DEADLINE_SECONDS: Final = 10
#: The longest deadline, delay or expiry, in seconds: more is a mistake, such as milliseconds for seconds.
MAX_SPAN_SECONDS: Final = 366 * 86_400
#: The most characters of an id or a name.
MAX_NAME: Final = 255


class AdmissionError(ValueError):
    """The activation cannot be taken; the message names the field and the fix, and repeats no payload."""


class Outcome(IntEnum):
    """What a worker may report, by its number on the wire."""

    FAILURE = 3
    RETRY = 4
    COMPLETE = 5


class FailureReason(StrEnum):
    """Why a task is not tried again."""

    REPORTED = "reported"
    DEADLINE = "deadline"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Inflight:
    """An activation in a broker's store. Times are Unix seconds, durations seconds.

    `data` is the serialized TaskActivation as it was admitted. `due_at` is since when it may be given out, and the
    order in which tasks are given out. `attempts` counts how often it was given out, with the claim under way.
    `deadline` is when the processing deadline and its grace end, or the claim. `retry_max_attempts` and `retry_delay`
    are what the worker asked for with a retry.
    """

    id: str
    namespace: str
    application: str
    taskname: str
    data: bytes = field(repr=False)
    state: ActivationState
    added_at: float
    due_at: float
    expires_at: float | None
    deadline_seconds: int
    at_most_once: bool
    keeps_dead_letter: bool
    attempts: int = 0
    deadline: float | None = None
    failure: FailureReason | None = None
    retry_max_attempts: int | None = None
    retry_delay: int | None = None

    def is_expired(self, now: float) -> bool:
        """Whether it is too late to start it."""
        return self.expires_at is not None and self.expires_at <= now


def admit(data: bytes, now: float) -> Inflight:
    """Return a serialized activation as it enters the store: pending, or delayed until `received_at + delay`.

    An activation without `received_at` is received now. Raises AdmissionError, and ActivationError for other bytes.
    """
    message = parse_message(data)
    activation = activation_of(message)
    _check(activation, now)
    if activation.received_at is None:
        set_received_at(message, now)
        data = message.SerializeToString()
    received = now if activation.received_at is None else activation.received_at
    retry = activation.retry
    due = now if activation.delay is None else max(now, received + activation.delay)
    return Inflight(
        id=activation.id,
        namespace=activation.namespace,
        application=activation.application or "",
        taskname=activation.taskname,
        data=data,
        state=ActivationState.DELAY if due > now else ActivationState.PENDING,
        added_at=now,
        due_at=due,
        expires_at=None if activation.expires is None else received + activation.expires,
        deadline_seconds=activation.processing_deadline_duration or DEFAULT_DEADLINE_SECONDS,
        at_most_once=retry is not None and retry.at_most_once,
        keeps_dead_letter=retry is not None and retry.on_attempts_exceeded is OnAttemptsExceeded.DEADLETTER,
    )


def give_out(inflight: Inflight, now: float, grace_seconds: float) -> Inflight:
    """Return a pending activation as a worker's, until its deadline and the grace. Raises ValueError in other states.

    The caller gives out no activation that is expired.
    """
    return replace(
        inflight,
        state=state_after(inflight, ActivationEvent.GIVEN_OUT),
        attempts=inflight.attempts + 1,
        deadline=now + inflight.deadline_seconds + grace_seconds,
    )


def claim(inflight: Inflight, now: float, claim_seconds: float) -> Inflight:
    """Return a pending activation as a broker's that pushes it. Raises ValueError in other states.

    The attempt counts from here: the worker may have the task, and even report it, before the broker knows.
    """
    return replace(
        inflight,
        state=state_after(inflight, ActivationEvent.CLAIMED),
        attempts=inflight.attempts + 1,
        deadline=now + claim_seconds,
    )


def deliver(inflight: Inflight, now: float, grace_seconds: float) -> Inflight:
    """Return a claimed activation as the worker's that has accepted it. Raises ValueError in other states."""
    return replace(
        inflight,
        state=state_after(inflight, ActivationEvent.DELIVERED),
        deadline=now + inflight.deadline_seconds + grace_seconds,
    )


def release(inflight: Inflight) -> Inflight:
    """Return a claimed activation that its worker has certainly not accepted. Raises ValueError in other states."""
    return replace(
        inflight,
        state=state_after(inflight, ActivationEvent.CLAIM_RELEASED),
        attempts=inflight.attempts - 1,
        deadline=None,
    )


_EVENT_OF_OUTCOME: Final = {
    Outcome.COMPLETE: ActivationEvent.COMPLETED,
    Outcome.FAILURE: ActivationEvent.FAILED,
    Outcome.RETRY: ActivationEvent.RETRY_REQUESTED,
}


def event_of(outcome: Outcome) -> ActivationEvent:
    """Return the event that a worker's report is."""
    return _EVENT_OF_OUTCOME[outcome]


def kept_retry_delay(seconds: int | None) -> int | None:
    """Return the delay that a worker asks for, bounded: its task has run already, so the value is not refused."""
    return None if seconds is None else min(seconds, MAX_SPAN_SECONDS)


def report(
    inflight: Inflight, outcome: Outcome, *, max_attempts: int | None = None, retry_delay: int | None = None
) -> Inflight | None:
    """Return what a worker's report makes of an activation, None if the report changes nothing.

    A report counts until another one has come, also after the deadline; one about a task that no worker has had does
    not. `max_attempts` and `retry_delay` count with a retry.
    """
    state = next_state(inflight.state, event_of(outcome))
    if state is None or inflight.attempts == 0:
        return None
    retries = outcome is Outcome.RETRY
    return replace(
        inflight,
        state=state,
        deadline=None,
        failure=FailureReason.REPORTED if outcome is Outcome.FAILURE else None,
        retry_max_attempts=max_attempts if retries else None,
        retry_delay=kept_retry_delay(retry_delay) if retries else None,
    )


def state_after(inflight: Inflight, event: ActivationEvent) -> ActivationState:
    """Return the state of an activation after an event. Raises ValueError when its state does not have the event."""
    state = next_state(inflight.state, event)
    if state is None:
        raise ValueError(f"activation {inflight.id} is {inflight.state}: not so when {event}")
    return state


def _check(activation: Activation, now: float) -> None:
    for name in ("id", "namespace", "taskname", "application"):
        text = getattr(activation, name) or ""
        if not text and name != "application":
            raise AdmissionError(f"{name} is empty: every task needs one")
        if len(text) > MAX_NAME:
            raise AdmissionError(f"{name} has {len(text)} characters: at most {MAX_NAME}")
        if "\0" in text:
            raise AdmissionError(f"{name} has a NUL character: leave it out")
    for name in ("processing_deadline_duration", "expires", "delay"):
        if (seconds := getattr(activation, name) or 0) > MAX_SPAN_SECONDS:
            raise AdmissionError(f"{name} is {seconds}: in seconds, at most {MAX_SPAN_SECONDS} (366 days)")
    if (activation.received_at or 0.0) > now + MAX_SPAN_SECONDS:
        raise AdmissionError("received_at is more than 366 days after this broker's clock: it is in Unix seconds")
