"""A broker's tables. Times are Unix seconds. PostgreSQL and SQLite hold the same tables."""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    text,
)

from activity_worker.taskbroker.lifecycle.inflight import FailureReason, Inflight
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.lifecycle.upkeep import DeadLetter

METADATA: Final = MetaData()
#: SQLite numbers rows by itself only in a column that is an INTEGER.
_NUMBER = BigInteger().with_variant(Integer(), "sqlite")

ACTIVATIONS: Final = Table(
    "activitypool_activations",
    METADATA,
    # The order of admission, on every clock.
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", String(255), nullable=False, unique=True),
    Column("namespace", String(255), nullable=False),
    # "" where the activation has none.
    Column("application", String(255), nullable=False),
    Column("taskname", String(255), nullable=False),
    # The serialized TaskActivation.
    Column("data", LargeBinary, nullable=False),
    Column("state", String(16), nullable=False),
    Column("added_at", Float, nullable=False),
    Column("due_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("deadline_seconds", Integer, nullable=False),
    Column("at_most_once", Boolean, nullable=False),
    Column("keeps_dead_letter", Boolean, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("deadline", Float),
    Column("failure", String(16)),
    Column("retry_max_attempts", BigInteger),
    Column("retry_delay", BigInteger),
)

#: What the partial indexes hold. A statement has to repeat such a condition with its literal for an index to serve it.
IS_PENDING: Final = text("state = 'pending'")
IS_MOVING: Final = text("state <> 'pending' AND state <> 'delay'")
IS_DELAYED: Final = text("state = 'delay'")
IS_EXPIRING: Final = text("expires_at IS NOT NULL AND (state = 'pending' OR state = 'delay')")


def _index(name: str, condition: Any, *columns: Any) -> Index:
    return Index(f"activitypool_activations_{name}", *columns, postgresql_where=condition, sqlite_where=condition)


_C = ACTIVATIONS.c
_index("pending", IS_PENDING, _C.due_at, _C.number)
_index("pending_of", IS_PENDING, _C.application, _C.namespace, _C.due_at, _C.number)
# For workers that name one of the two: the first of their tasks may lie behind a million others.
_index("pending_application", IS_PENDING, _C.application, _C.due_at, _C.number)
_index("pending_namespace", IS_PENDING, _C.namespace, _C.due_at, _C.number)
_index("moving", IS_MOVING, _C.state, _C.deadline)
_index("delayed", IS_DELAYED, _C.due_at)
_index("expiring", IS_EXPIRING, _C.expires_at)

DEAD_LETTERS: Final = Table(
    "activitypool_dead_letters",
    METADATA,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    # Not unique: a task that is requeued and fails again is another letter.
    Column("id", String(255), nullable=False),
    Column("namespace", String(255), nullable=False),
    Column("application", String(255), nullable=False),
    Column("taskname", String(255), nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("reason", String(16), nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("added_at", Float, nullable=False),
    Column("dead_at", Float, nullable=False),
)

#: How far each partition of a Kafka topic was read into this store.
KAFKA_POSITIONS: Final = Table(
    "activitypool_kafka_positions",
    METADATA,
    # The cluster's id; offsets of another cluster mean nothing here.
    Column("cluster", String(255), primary_key=True),
    Column("consumer_group", String(255), primary_key=True),
    Column("topic", String(255), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("next_offset", BigInteger, nullable=False),
)

FINISHED_IDS: Final = Table(
    "activitypool_finished_ids",
    METADATA,
    Column("id", String(255), primary_key=True),
    Column("kept_until", Float, nullable=False),
    Index("activitypool_finished_ids_kept", "kept_until"),
)

#: The fields of an activation that are columns of the same name.
FIELDS: Final = tuple(column.name for column in ACTIVATIONS.c if column.name != "number")


def inflight_row(inflight: Inflight) -> dict[str, Any]:
    """Return an activation as a row."""
    return {name: getattr(inflight, name) for name in FIELDS}


def inflight_of(row: Row[Any]) -> Inflight:
    """Return the activation of a row, which may be without its data."""
    values: dict[str, Any] = {name: getattr(row, name, b"") for name in FIELDS}
    values["state"] = ActivationState(row.state)
    values["failure"] = None if row.failure is None else FailureReason(row.failure)
    return Inflight(**values)


def letter_row(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as a row."""
    return {column.name: getattr(letter, column.name) for column in DEAD_LETTERS.c if column.name != "number"}


def letter_of(row: Row[Any]) -> DeadLetter:
    """Return the dead letter of a row."""
    values = {column.name: getattr(row, column.name) for column in DEAD_LETTERS.c if column.name != "number"}
    return DeadLetter(**{**values, "reason": FailureReason(row.reason)})
