"""Definitions, instances and their history."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "activitypool_definitions",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(255), nullable=False, index=True),
        sa.Column("source", _JSON, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
    )
    op.create_table(
        "activitypool_instances",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("task_name", sa.String(255), nullable=False),
        sa.Column("definition_id", sa.String(64), sa.ForeignKey("activitypool_definitions.id"), nullable=False),
        sa.Column("data", _JSON, nullable=False),
        sa.Column("status", _JSON, nullable=False),
        sa.Column("next_run_time", sa.Float),
        sa.Column("complete", sa.Boolean, nullable=False),
        sa.Column("success", sa.Boolean, nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("request", sa.String(16), nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("runner", sa.String(255), nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
    )
    op.create_index(
        "activitypool_instances_due",
        "activitypool_instances",
        ["next_run_time"],
        postgresql_where=sa.text("complete IS false AND paused IS false"),
    )
    op.create_table(
        "activitypool_history",
        sa.Column("instance_id", sa.String(64), sa.ForeignKey("activitypool_instances.id"), primary_key=True),
        sa.Column("revision", sa.Integer, primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("runner", sa.String(255), nullable=False),
        sa.Column("status", _JSON, nullable=False),
        sa.Column("next_run_time", sa.Float),
        sa.Column("data", _JSON),
    )


def downgrade() -> None:
    """Drop them, with everything in them."""
    op.drop_table("activitypool_history")
    op.drop_table("activitypool_instances")
    op.drop_table("activitypool_definitions")
