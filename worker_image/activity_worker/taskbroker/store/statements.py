"""The store's frequent statements, built once. They hold for both databases; SQLite ignores FOR UPDATE.

Conditions on `state` are literals: a parameter could not be matched with a partial index.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Float,
    Integer,
    Select,
    String,
    Update,
    bindparam,
    literal_column,
    not_,
    or_,
    select,
    update,
)

from activity_worker.taskbroker.lifecycle.inflight import FailureReason, Outcome, event_of, kept_retry_delay
from activity_worker.taskbroker.lifecycle.states import ActivationState, next_state
from activity_worker.taskbroker.lifecycle.upkeep import STATES_OF_STEP, UpkeepStep
from activity_worker.taskbroker.store.tables import ACTIVATIONS, IS_DELAYED, IS_EXPIRING, IS_MOVING, IS_PENDING

_C = ACTIVATIONS.c


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks a worker wants; None is any."""

    namespace: str | None = None
    application: str | None = None

    @property
    def kind(self) -> tuple[bool, bool]:
        """Which of the two are given: the statement to use."""
        return self.namespace is not None, self.application is not None

    @property
    def values(self) -> Mapping[str, str]:
        """The statement's parameters."""
        wanted = {"namespace": self.namespace, "application": self.application}
        return {f"wanted_{name}": value for name, value in wanted.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker reports of a task; the last two count with a retry."""

    id: str
    outcome: Outcome
    max_attempts: int | None = None
    retry_delay: int | None = None

    @property
    def values(self) -> Mapping[str, Any]:
        """The statement's parameters."""
        retries = self.outcome is Outcome.RETRY
        return {
            "reported_id": self.id,
            "new_max_attempts": self.max_attempts if retries else None,
            "new_retry_delay": kept_retry_delay(self.retry_delay) if retries else None,
        }


def is_in(*states: ActivationState) -> ColumnElement[bool]:
    """Return the condition for activations in one of the states, with literals."""
    return or_(*(_C.state == literal_column(f"'{state}'") for state in states))


def _give_out(*, by_namespace: bool, by_application: bool) -> Update:
    now = bindparam("now", type_=Float)
    first = select(_C.number).where(IS_PENDING, or_(_C.expires_at.is_(None), _C.expires_at > now))
    if by_namespace:
        first = first.where(_C.namespace == bindparam("wanted_namespace", type_=String))
    if by_application:
        first = first.where(_C.application == bindparam("wanted_application", type_=String))
    # Another broker's choice is skipped, so no two brokers wait for each other or give out the same task.
    first = first.order_by(_C.due_at, _C.number).limit(1).with_for_update(skip_locked=True)
    given = {
        "state": literal_column(f"'{ActivationState.PROCESSING}'"),
        "attempts": _C.attempts + 1,
        "deadline": now + _C.deadline_seconds + bindparam("grace", type_=Float),
    }
    return update(ACTIVATIONS).where(_C.number == first.scalar_subquery()).values(given).returning(_C.data)


def _report(outcome: Outcome) -> Update:
    event = event_of(outcome)
    before = [state for state in ActivationState if next_state(state, event) is not None]
    (after,) = {next_state(state, event) for state in before}
    changed: dict[str, Any] = {
        "state": literal_column(f"'{after}'"),
        "deadline": None,
        "failure": FailureReason.REPORTED if outcome is Outcome.FAILURE else None,
        "retry_max_attempts": bindparam("new_max_attempts", type_=BigInteger),
        "retry_delay": bindparam("new_retry_delay", type_=BigInteger),
    }
    reported = (_C.id == bindparam("reported_id", type_=String), is_in(*before), _C.attempts > 0)
    return update(ACTIVATIONS).where(*reported).values(changed)


def _due_in(step: UpkeepStep, *conditions: ColumnElement[bool]) -> Select[Any]:
    """Return the choice of activations that a step is due for: what `is_due` says, as a condition, and further ones."""
    now = bindparam("now", type_=Float)
    moment = {
        UpkeepStep.PASS_DEADLINES: _C.deadline <= now,
        UpkeepStep.EXPIRE: _C.expires_at <= now,
        UpkeepStep.END_DELAYS: _C.due_at <= now,
    }.get(step)
    indexed = {UpkeepStep.EXPIRE: IS_EXPIRING, UpkeepStep.END_DELAYS: IS_DELAYED}.get(step, IS_MOVING)
    # The message is read only where it is used: retries and failures.
    reads = step in {UpkeepStep.APPEND_RETRIES, UpkeepStep.HANDLE_FAILURES}
    columns = [column for column in _C if reads or column is not _C.data]
    chosen = select(*columns).where(is_in(*STATES_OF_STEP[step]), indexed, *conditions)
    if moment is not None:
        chosen = chosen.where(moment)
    return chosen.limit(bindparam("batch", type_=Integer)).with_for_update(skip_locked=True)


def numbered(step: UpkeepStep, numbers: Collection[int]) -> Select[Any]:
    """Return the choice of activations of these numbers that are still in a state of the step."""
    return select(*_C).where(is_in(*STATES_OF_STEP[step]), _C.number.in_(numbers)).with_for_update()


def completed(step: UpkeepStep, numbers: Collection[int]) -> Update:
    """Return the statement that completes activations of these numbers if they are still in a state of the step."""
    chosen = update(ACTIVATIONS).where(is_in(*STATES_OF_STEP[step]), _C.number.in_(numbers))
    return chosen.values(state=literal_column(f"'{ActivationState.COMPLETE}'"), deadline=None)


GIVE_OUT: Final = {
    (namespace, application): _give_out(by_namespace=namespace, by_application=application)
    for namespace in (False, True)
    for application in (False, True)
}
REPORT: Final = {outcome: _report(outcome) for outcome in Outcome}
DUE_IN: Final = {step: _due_in(step) for step in UpkeepStep}
#: What a step writes to a topic, where there is one for it.
_FOR_TOPIC: Final = {
    UpkeepStep.APPEND_RETRIES: _C.at_most_once.is_(False),
    UpkeepStep.HANDLE_FAILURES: _C.keeps_dead_letter.is_(True),
}
_UNLEASED: Final = or_(_C.deadline.is_(None), _C.deadline <= bindparam("now", type_=Float))
DUE_FOR_TOPIC: Final = {step: _due_in(step, chosen, _UNLEASED) for step, chosen in _FOR_TOPIC.items()}
#: What is left to the store of the steps that have a topic.
DUE_BESIDE_TOPIC: Final = {step: _due_in(step, not_(chosen)) for step, chosen in _FOR_TOPIC.items()}
#: Keeps activations for one broker, which writes them to a topic.
LEASE: Final = (
    update(ACTIVATIONS)
    .where(_C.number == bindparam("this", type_=BigInteger))
    .values(deadline=bindparam("until", type_=Float))
)
#: Writes what a step has made of an activation.
MOVE: Final = (
    update(ACTIVATIONS)
    .where(_C.number == bindparam("this", type_=BigInteger))
    .values(state=bindparam("state"), deadline=bindparam("deadline"), failure=bindparam("failure"))
)
