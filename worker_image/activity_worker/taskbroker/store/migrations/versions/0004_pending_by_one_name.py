"""Indexes for workers that name an application or a namespace, and not both."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_CONDITION = sa.text("state = 'pending'")


def upgrade() -> None:
    """Make the indexes."""
    for name in ("application", "namespace"):
        op.create_index(
            f"activitypool_activations_pending_{name}",
            "activitypool_activations",
            [name, "due_at", "number"],
            postgresql_where=_CONDITION,
            sqlite_where=_CONDITION,
        )


def downgrade() -> None:
    """Drop them."""
    for name in ("application", "namespace"):
        op.drop_index(f"activitypool_activations_pending_{name}", "activitypool_activations")
