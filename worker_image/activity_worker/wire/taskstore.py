"""The task store's tables, and which of their instances are due.

Times are Unix seconds. PostgreSQL and SQLite hold the same tables.
"""

from collections.abc import Collection

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    ColumnElement,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    and_,
)
from sqlalchemy.dialects.postgresql import JSONB

from activity_worker.wire.taskstore_due import CHANNEL

__all__ = ["CHANNEL", "DEFINITIONS", "HISTORY", "INSTANCES", "METADATA", "is_due"]

METADATA = MetaData()
_JSON = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

DEFINITIONS = Table(
    "activitypool_definitions",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("name", String(255), nullable=False, index=True),
    Column("source", _JSON, nullable=False),
    Column("created", Float, nullable=False),
)

INSTANCES = Table(
    "activitypool_instances",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("task_name", String(255), nullable=False),
    Column("definition_id", String(64), ForeignKey("activitypool_definitions.id"), nullable=False),
    Column("data", _JSON, nullable=False),
    Column("status", _JSON, nullable=False),
    Column("next_run_time", Float),
    Column("complete", Boolean, nullable=False),
    Column("success", Boolean, nullable=False),
    Column("paused", Boolean, nullable=False),
    # Asked for by a person and not yet done: "cancel", or "".
    Column("request", String(16), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("runner", String(255), nullable=False),
    Column("created", Float, nullable=False),
    Column("updated", Float, nullable=False),
)
Index(
    "activitypool_instances_due",
    INSTANCES.c.next_run_time,
    postgresql_where=and_(INSTANCES.c.complete.is_(False), INSTANCES.c.paused.is_(False)),
)

HISTORY = Table(
    "activitypool_history",
    METADATA,
    Column("instance_id", String(64), ForeignKey("activitypool_instances.id"), primary_key=True),
    Column("revision", Integer, primary_key=True),
    Column("at", Float, nullable=False),
    Column("runner", String(255), nullable=False),
    Column("status", _JSON, nullable=False),
    Column("next_run_time", Float),
    # NULL where it is as in the revision before.
    Column("data", _JSON),
)


def is_due(now: float, tasks: Collection[str] = ()) -> ColumnElement[bool]:
    """Return the condition for instances that a runner may pick up now; `tasks` are task names, empty for all."""
    due = and_(
        INSTANCES.c.complete.is_(False),
        INSTANCES.c.paused.is_(False),
        INSTANCES.c.next_run_time <= now,
    )
    return and_(due, INSTANCES.c.task_name.in_(tuple(tasks))) if tasks else due
