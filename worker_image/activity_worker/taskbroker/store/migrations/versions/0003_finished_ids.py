"""Ids of tasks that are over, which a producer may still repeat."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "activitypool_finished_ids",
        sa.Column("id", sa.String(255), primary_key=True),
        sa.Column("kept_until", sa.Float, nullable=False),
    )
    op.create_index("activitypool_finished_ids_kept", "activitypool_finished_ids", ["kept_until"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("activitypool_finished_ids")
