"""The store's frequent statements, built once. They hold for both databases; SQLite ignores FOR UPDATE.

Conditions on `state` are literals: a parameter could not be matched with a partial index.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Delete,
    Float,
    Integer,
    Select,
    String,
    Update,
    any_,
    bindparam,
    delete,
    func,
    literal_column,
    not_,
    or_,
    select,
    text,
    true,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningUpdate

from activity_worker.taskbroker.lifecycle.inflight import FailureReason, Outcome, event_of, kept_retry_delay
from activity_worker.taskbroker.lifecycle.states import ActivationState, next_state
from activity_worker.taskbroker.lifecycle.upkeep import STATES_OF_STEP, UpkeepStep
from activity_worker.taskbroker.store.tables import (
    ACTIVATIONS,
    FINISHED_IDS,
    IS_DELAYED,
    IS_EXPIRING,
    IS_MOVING,
    IS_PENDING,
)

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

    def wants(self, application: str, namespace: str) -> bool:
        """Return whether tasks of this application ("": none) and namespace are wanted."""
        return self.namespace in {None, namespace} and self.application in {None, application}


@dataclass(frozen=True, slots=True)
class GivenOut:
    """An activation that was given out: its number in the store, which attempt that is, and its message."""

    number: int
    attempt: int
    data: bytes = field(repr=False)


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


def _first_pending(
    *, by_namespace: bool, by_application: bool, most: str, beside: ColumnElement[bool] | None = None
) -> Select[Any]:
    """Return the numbers of the pending activations that have been due longest, as many as the parameter `most`.

    `beside` is a further condition.
    """
    now = bindparam("now", type_=Float)
    first = select(_C.number).where(IS_PENDING, or_(_C.expires_at.is_(None), _C.expires_at > now))
    if beside is not None:
        first = first.where(beside)
    if by_namespace:
        first = first.where(_C.namespace == bindparam("wanted_namespace", type_=String))
    if by_application:
        first = first.where(_C.application == bindparam("wanted_application", type_=String))
    # Another broker's choice is skipped, so no two brokers wait for each other or give out the same task.
    # A CTE that locks is evaluated once: a subquery with a limit could be evaluated for each row.
    chosen = first.order_by(_C.due_at, _C.number).limit(bindparam(most, type_=Integer))
    return select(chosen.with_for_update(skip_locked=True).cte("chosen").c.number)


def _give_out(
    *, by_namespace: bool, by_application: bool, beside: ColumnElement[bool] | None = None
) -> ReturningUpdate[Any]:
    numbers = _first_pending(by_namespace=by_namespace, by_application=by_application, most="most", beside=beside)
    now = bindparam("now", type_=Float)
    given = {
        "state": literal_column(f"'{ActivationState.PROCESSING}'"),
        "attempts": _C.attempts + 1,
        "deadline": now + _C.deadline_seconds + bindparam("grace", type_=Float),
    }
    updated = update(ACTIVATIONS).where(_C.number.in_(numbers)).values(given)
    return updated.returning(_C.data, _C.due_at, _C.number, _C.attempts)


def _claim(*, by_namespace: bool, by_application: bool) -> ReturningUpdate[Any]:
    numbers = _first_pending(by_namespace=by_namespace, by_application=by_application, most="batch")
    claimed = {
        "state": literal_column(f"'{ActivationState.CLAIMED}'"),
        "attempts": _C.attempts + 1,
        "deadline": bindparam("claimed_until", type_=Float),
    }
    returned = (_C.number, _C.due_at, _C.id, _C.attempts, _C.data, _C.deadline_seconds)
    return update(ACTIVATIONS).where(_C.number.in_(numbers)).values(claimed).returning(*returned)


def _end_claim(values: Mapping[str, Any]) -> Update:
    """Return a write that ends one claim. A later claim of the same activation has another number of attempts."""
    numbers = {"this": _C.number, "attempt": _C.attempts}
    same = (column == bindparam(name, type_=column.type) for name, column in numbers.items())
    return update(ACTIVATIONS).where(*same, is_in(ActivationState.CLAIMED)).values(values)


def _report(outcome: Outcome) -> Update:
    event = event_of(outcome)
    before = [state for state in ActivationState if next_state(state, event) is not None]
    changed = _reported_values(outcome, before) | {
        "retry_max_attempts": bindparam("new_max_attempts", type_=BigInteger),
        "retry_delay": bindparam("new_retry_delay", type_=BigInteger),
    }
    reported = (_C.id == bindparam("reported_id", type_=String), is_in(*before), _C.attempts > 0)
    return update(ACTIVATIONS).where(*reported).values(changed)


def _reported_values(outcome: Outcome, before: Sequence[ActivationState]) -> dict[str, Any]:
    (after,) = {next_state(state, event_of(outcome)) for state in before}
    return {
        "state": literal_column(f"'{after}'"),
        "deadline": None,
        "failure": FailureReason.REPORTED if outcome is Outcome.FAILURE else None,
        "retry_max_attempts": None,
        "retry_delay": None,
    }


#: The ids in the parameter `reported_ids`, which is one value. A statement with a parameter for each id would be
#: another one for each number of ids, to be rendered here and planned there.
_AMONG_REPORTED: Final[Mapping[str, ColumnElement[bool]]] = {
    "postgresql": _C.id == any_(bindparam("reported_ids", type_=postgresql.ARRAY(String))),
    # A JSON list.
    "sqlite": _C.id.in_(text("SELECT value FROM json_each(:reported_ids)")),
}


def _report_many(outcome: Outcome, database: str) -> ReturningUpdate[Any]:
    """Return the report of several tasks that ask for no retry: of those in `reported_ids`."""
    event = event_of(outcome)
    before = [state for state in ActivationState if next_state(state, event) is not None]
    reported = (_AMONG_REPORTED[database], is_in(*before), _C.attempts > 0)
    # In one order everywhere, so that two brokers never wait for each other.
    numbers = select(_C.number).where(*reported).order_by(_C.number).with_for_update().cte("found").c.number
    updated = update(ACTIVATIONS).where(_C.number.in_(select(numbers))).values(_reported_values(outcome, before))
    # SQLite's driver counts no rows of a statement that begins with a CTE.
    return updated.returning(_C.number)


def _exchange(outcome: Outcome, *, by_namespace: bool, by_application: bool) -> Select[Any]:
    """Return the report of several tasks and the giving out of others as one statement, for PostgreSQL.

    Each row has in `changed` how many reports changed an activation, and one that is given out, or NULLs for none.
    """
    reported = _report_many(outcome, "postgresql").cte("reported")
    # A pending task may be reported as well, and one statement changes a row once. This also locks what is reported
    # first: what is given out is never waited for, so that two brokers never wait for each other.
    others = _C.number.not_in(select(reported.c.number))
    given = _give_out(by_namespace=by_namespace, by_application=by_application, beside=others).cte("given")
    counted = select(func.count().label("changed")).select_from(reported).subquery("counted")
    return select(counted.c.changed, *given.c).select_from(counted.outerjoin(given, true()))


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


def _forget_ids() -> Delete:
    """Return the deletion of ids whose time is over; what another broker deletes is left to it."""
    over = select(FINISHED_IDS.c.id).where(FINISHED_IDS.c.kept_until <= bindparam("now", type_=Float))
    chosen = over.limit(bindparam("batch", type_=Integer)).with_for_update(skip_locked=True)
    return delete(FINISHED_IDS).where(FINISHED_IDS.c.id.in_(chosen))


def _keep_ids(kept: Any) -> Any:
    """Return the upsert of ids of finished tasks."""
    return kept.on_conflict_do_update(index_elements=["id"], set_={"kept_until": kept.excluded.kept_until})


GIVE_OUT: Final = {
    (namespace, application): _give_out(by_namespace=namespace, by_application=application)
    for namespace in (False, True)
    for application in (False, True)
}
CLAIM: Final = {
    (namespace, application): _claim(by_namespace=namespace, by_application=application)
    for namespace in (False, True)
    for application in (False, True)
}
DELIVER: Final = _end_claim(
    {
        "state": literal_column(f"'{ActivationState.PROCESSING}'"),
        "deadline": bindparam("now", type_=Float) + _C.deadline_seconds + bindparam("grace", type_=Float),
    }
)
RELEASE: Final = _end_claim(
    {"state": literal_column(f"'{ActivationState.PENDING}'"), "attempts": _C.attempts - 1, "deadline": None}
)
REPORT: Final = {outcome: _report(outcome) for outcome in Outcome}
#: By database. Retries are reported one by one: each has its own terms.
REPORT_MANY: Final[Mapping[str, Mapping[Outcome, ReturningUpdate[Any]]]] = {
    database: {outcome: _report_many(outcome, database) for outcome in Outcome if outcome is not Outcome.RETRY}
    for database in _AMONG_REPORTED
}
#: By outcome, and by what is given of a filter.
EXCHANGE: Final = {
    (outcome, namespace, application): _exchange(outcome, by_namespace=namespace, by_application=application)
    for outcome in REPORT_MANY["postgresql"]
    for namespace in (False, True)
    for application in (False, True)
}
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
#: Which of these ids belong to tasks that were over a moment ago.
FINISHED: Final = select(FINISHED_IDS.c.id).where(
    FINISHED_IDS.c.id.in_(bindparam("ids", expanding=True)),
    FINISHED_IDS.c.kept_until > bindparam("now", type_=Float),
)
FORGET_IDS: Final = _forget_ids()
#: What may be removed: the numbers, ids and times alone.
COMPLETED: Final = (
    select(_C.number, _C.id, _C.added_at)
    .where(is_in(*STATES_OF_STEP[UpkeepStep.REMOVE_COMPLETE]), IS_MOVING)
    .limit(bindparam("batch", type_=Integer))
    .with_for_update(skip_locked=True)
)
REMOVE: Final = delete(ACTIVATIONS).where(_C.number.in_(bindparam("numbers", expanding=True)))
KEEP_IDS: Final[Mapping[str, Any]] = {
    "postgresql": _keep_ids(postgresql.insert(FINISHED_IDS)),
    "sqlite": _keep_ids(sqlite.insert(FINISHED_IDS)),
}
#: Undoes that these were given out, each where it still has this attempt.
GIVE_BACK: Final = (
    update(ACTIVATIONS)
    .where(
        _C.number == bindparam("this", type_=BigInteger),
        _C.attempts == bindparam("attempt", type_=Integer),
        is_in(ActivationState.PROCESSING),
    )
    .values(state=literal_column(f"'{ActivationState.PENDING}'"), attempts=_C.attempts - 1, deadline=None)
)
