"""Activations and dead letters."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

#: SQLite numbers rows by itself only in a column that is an INTEGER.
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "activitypool_activations",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(255), nullable=False, unique=True),
        sa.Column("namespace", sa.String(255), nullable=False),
        sa.Column("application", sa.String(255), nullable=False),
        sa.Column("taskname", sa.String(255), nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("added_at", sa.Float, nullable=False),
        sa.Column("due_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float),
        sa.Column("deadline_seconds", sa.Integer, nullable=False),
        sa.Column("at_most_once", sa.Boolean, nullable=False),
        sa.Column("keeps_dead_letter", sa.Boolean, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("deadline", sa.Float),
        sa.Column("failure", sa.String(16)),
        sa.Column("retry_max_attempts", sa.BigInteger),
        sa.Column("retry_delay", sa.BigInteger),
    )
    for name, columns, condition in (
        ("pending", ["due_at", "number"], "state = 'pending'"),
        ("pending_of", ["application", "namespace", "due_at", "number"], "state = 'pending'"),
        ("moving", ["state", "deadline"], "state <> 'pending' AND state <> 'delay'"),
        ("delayed", ["due_at"], "state = 'delay'"),
        ("expiring", ["expires_at"], "expires_at IS NOT NULL AND (state = 'pending' OR state = 'delay')"),
    ):
        op.create_index(
            f"activitypool_activations_{name}",
            "activitypool_activations",
            columns,
            postgresql_where=sa.text(condition),
            sqlite_where=sa.text(condition),
        )
    op.create_table(
        "activitypool_dead_letters",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("namespace", sa.String(255), nullable=False),
        sa.Column("application", sa.String(255), nullable=False),
        sa.Column("taskname", sa.String(255), nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("reason", sa.String(16), nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("added_at", sa.Float, nullable=False),
        sa.Column("dead_at", sa.Float, nullable=False),
    )


def downgrade() -> None:
    """Drop them, with everything in them."""
    op.drop_table("activitypool_dead_letters")
    op.drop_table("activitypool_activations")
