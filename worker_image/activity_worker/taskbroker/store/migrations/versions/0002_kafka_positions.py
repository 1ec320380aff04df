"""How far each partition of Kafka's topics was read."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "activitypool_kafka_positions",
        sa.Column("cluster", sa.String(255), primary_key=True),
        sa.Column("consumer_group", sa.String(255), primary_key=True),
        sa.Column("topic", sa.String(255), primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop it: the broker then reads on where Kafka's committed offsets say."""
    op.drop_table("activitypool_kafka_positions")
