"""PURE: upkeep, which moves activations on: six steps, always in this order, each over the activations it is for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from activity_worker.taskbroker.lifecycle.inflight import (
    FailureReason,
    Inflight,
    admit,
    kept_retry_delay,
    state_after,
)
from activity_worker.taskbroker.lifecycle.states import ActivationEvent, ActivationState
from activity_worker.taskbroker.protocol.activation import parse_message, set_received_at

_STATE, _EVENT = ActivationState, ActivationEvent
#: Seconds after its admission in which the id of a task that is over is not taken again. A producer that got no answer
#: repeats its call for 30 s, and a call takes 10 s at most.
ID_KEPT_SECONDS: Final = 60.0
#: The largest number of attempts that the message can hold.
_MAX_UINT32: Final = 2**32 - 1


class UpkeepStep(Enum):
    """The steps of upkeep in their order."""

    APPEND_RETRIES = auto()
    PASS_DEADLINES = auto()
    EXPIRE = auto()
    END_DELAYS = auto()
    HANDLE_FAILURES = auto()
    REMOVE_COMPLETE = auto()


#: The states of the activations that a step looks at.
STATES_OF_STEP: Final[Mapping[UpkeepStep, tuple[ActivationState, ...]]] = MappingProxyType(
    {
        UpkeepStep.APPEND_RETRIES: (_STATE.RETRY,),
        UpkeepStep.PASS_DEADLINES: (_STATE.PROCESSING, _STATE.CLAIMED),
        UpkeepStep.EXPIRE: (_STATE.PENDING, _STATE.DELAY),
        UpkeepStep.END_DELAYS: (_STATE.DELAY,),
        UpkeepStep.HANDLE_FAILURES: (_STATE.FAILURE,),
        UpkeepStep.REMOVE_COMPLETE: (_STATE.COMPLETE,),
    }
)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A task that failed for good and asked to be kept. `attempts` are its retry state's and this activation's own."""

    id: str
    namespace: str
    application: str
    taskname: str
    data: bytes = field(repr=False)
    reason: FailureReason
    attempts: int
    added_at: float
    dead_at: float


@dataclass(frozen=True, slots=True)
class Change:
    """What a step makes of an activation: what it is `after` (None: removed), and what is written with that."""

    after: Inflight | None
    appended: Inflight | None = None
    dead_letter: DeadLetter | None = None


def is_due(step: UpkeepStep, inflight: Inflight, now: float) -> bool:
    """Return whether a step has anything to do with an activation now. Every comparison includes `now` itself."""
    if inflight.state not in STATES_OF_STEP[step]:
        return False
    if step is UpkeepStep.PASS_DEADLINES:
        return inflight.deadline is not None and inflight.deadline <= now
    if step is UpkeepStep.EXPIRE:
        return inflight.is_expired(now)
    if step is UpkeepStep.END_DELAYS:
        return inflight.due_at <= now
    return True


def advance(step: UpkeepStep, inflight: Inflight, now: float, *, max_attempts: int, new_id: str) -> Change:
    """Return what a step makes of an activation that is due in it.

    `max_attempts` is how often a broker gives a task out; `new_id` is the id of a retry that is appended.
    """
    if step is UpkeepStep.APPEND_RETRIES:
        return Change(_moved(inflight, _EVENT.RETRY_APPENDED), appended=_retried(inflight, now, new_id))
    if step is UpkeepStep.PASS_DEADLINES:
        return Change(_past_deadline(inflight, max_attempts))
    if step is UpkeepStep.EXPIRE:
        return Change(replace(_moved(inflight, _EVENT.EXPIRED), failure=FailureReason.EXPIRED))
    if step is UpkeepStep.END_DELAYS:
        return Change(_moved(inflight, _EVENT.DELAY_ELAPSED))
    if step is UpkeepStep.HANDLE_FAILURES:
        letter = _dead_letter(inflight, now) if inflight.keeps_dead_letter else None
        return Change(_moved(inflight, _EVENT.FAILURE_HANDLED), dead_letter=letter)
    return Change(None)


def id_kept_until(added_at: float) -> float:
    """Return until when the id of a task that was added then, and is over, is not taken again. Unix seconds."""
    return added_at + ID_KEPT_SECONDS


def requeued(letter: DeadLetter, now: float) -> Inflight:
    """Return the activation that a dead letter becomes when it is tried again: the same id, no attempts, no delay."""
    message = parse_message(letter.data)
    message.retry_state.attempts = 0
    message.ClearField("delay")
    set_received_at(message, now)
    return admit(message.SerializeToString(), now)


def _past_deadline(inflight: Inflight, max_attempts: int) -> Inflight:
    """Return to pending without a retry consumed: a lost worker is often the infrastructure's fault.

    An expired claim is treated alike: the worker may have accepted the task.
    """
    if inflight.at_most_once or inflight.attempts >= max_attempts:
        return replace(_moved(inflight, _EVENT.ATTEMPTS_EXHAUSTED), failure=FailureReason.DEADLINE)
    claimed = inflight.state is _STATE.CLAIMED
    return _moved(inflight, _EVENT.CLAIM_EXPIRED if claimed else _EVENT.DEADLINE_PASSED)


def _retried(inflight: Inflight, now: float, new_id: str) -> Inflight:
    message = parse_message(inflight.data)
    message.id = new_id
    message.retry_state.attempts = min(message.retry_state.attempts + 1, _MAX_UINT32)
    if inflight.retry_max_attempts is not None:
        message.retry_state.max_attempts = inflight.retry_max_attempts
    message.ClearField("delay")
    delay = inflight.retry_delay
    if delay is None and message.retry_state.HasField("delay_on_retry"):
        delay = message.retry_state.delay_on_retry
    if delay:
        message.delay = kept_retry_delay(delay)
    set_received_at(message, now)
    return admit(message.SerializeToString(), now)


def _dead_letter(inflight: Inflight, now: float) -> DeadLetter:
    return DeadLetter(
        id=inflight.id,
        namespace=inflight.namespace,
        application=inflight.application,
        taskname=inflight.taskname,
        data=inflight.data,
        reason=inflight.failure or FailureReason.REPORTED,
        attempts=parse_message(inflight.data).retry_state.attempts + inflight.attempts,
        added_at=inflight.added_at,
        dead_at=now,
    )


def _moved(inflight: Inflight, event: ActivationEvent) -> Inflight:
    return replace(inflight, state=state_after(inflight, event), deadline=None)
