"""PURE: the states of an activation, and the table of events that lead from one to the next."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class ActivationState(StrEnum):
    """Where an activation stands."""

    #: It waits for a worker.
    PENDING = "pending"
    #: A broker has taken it to push it to a worker, until the claim expires. It does not know yet whether a worker has
    #: it.
    CLAIMED = "claimed"
    #: It waits for its time.
    DELAY = "delay"
    #: A worker has it, until the processing deadline.
    PROCESSING = "processing"
    #: It is not tried again; upkeep keeps it as a dead letter, or discards it.
    FAILURE = "failure"
    #: Upkeep appends it as a new activation.
    RETRY = "retry"
    #: Nothing is left to do; upkeep removes it.
    COMPLETE = "complete"


class ActivationEvent(StrEnum):
    """What happens to an activation."""

    GIVEN_OUT = "a worker is given the task"
    CLAIMED = "a broker takes the task to push it"
    DELIVERED = "a worker accepts the pushed task"
    CLAIM_RELEASED = "the worker refuses the pushed task"
    CLAIM_EXPIRED = "nobody knows whether a worker has accepted the pushed task, and attempts are left"
    COMPLETED = "the worker completes the task"
    FAILED = "the worker fails the task"
    RETRY_REQUESTED = "the worker requests a retry"
    DEADLINE_PASSED = "the processing deadline passes, and attempts are left"
    ATTEMPTS_EXHAUSTED = "the processing deadline of the last attempt passes, or its claim expires"
    EXPIRED = "the task expires before a worker has it"
    DELAY_ELAPSED = "the delay elapses"
    RETRY_APPENDED = "the retry is appended as a new activation"
    FAILURE_HANDLED = "the failed task is a dead letter, or discarded"


_STATE, _EVENT = ActivationState, ActivationEvent
#: What a report makes of a task whose deadline has passed: the worker was late, and its outcome is known all the same.
_REPORTS: Final = {
    _EVENT.COMPLETED: _STATE.COMPLETE,
    _EVENT.FAILED: _STATE.FAILURE,
    _EVENT.RETRY_REQUESTED: _STATE.RETRY,
}
#: From each state, by event, the next one. An event that a state does not have leaves the activation as it is.
TRANSITIONS: Final[Mapping[ActivationState, Mapping[ActivationEvent, ActivationState]]] = MappingProxyType(
    {
        _STATE.PENDING: {
            _EVENT.GIVEN_OUT: _STATE.PROCESSING,
            _EVENT.CLAIMED: _STATE.CLAIMED,
            _EVENT.EXPIRED: _STATE.FAILURE,
            **_REPORTS,
        },
        _STATE.CLAIMED: {
            _EVENT.DELIVERED: _STATE.PROCESSING,
            _EVENT.CLAIM_RELEASED: _STATE.PENDING,
            _EVENT.CLAIM_EXPIRED: _STATE.PENDING,
            _EVENT.ATTEMPTS_EXHAUSTED: _STATE.FAILURE,
            **_REPORTS,
        },
        _STATE.DELAY: {
            _EVENT.DELAY_ELAPSED: _STATE.PENDING,
            _EVENT.EXPIRED: _STATE.FAILURE,
        },
        _STATE.PROCESSING: {
            _EVENT.DEADLINE_PASSED: _STATE.PENDING,
            _EVENT.ATTEMPTS_EXHAUSTED: _STATE.FAILURE,
            **_REPORTS,
        },
        _STATE.FAILURE: {_EVENT.FAILURE_HANDLED: _STATE.COMPLETE},
        _STATE.RETRY: {_EVENT.RETRY_APPENDED: _STATE.COMPLETE},
        _STATE.COMPLETE: {},
    }
)


def next_state(state: ActivationState, event: ActivationEvent) -> ActivationState | None:
    """Return the state after an event, None when the event means nothing in this state."""
    return TRANSITIONS[state].get(event)
