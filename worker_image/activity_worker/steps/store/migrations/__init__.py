"""Changes of the task store's tables, in order; made when a store is opened."""

from pathlib import Path

from sqlalchemy import Connection

from activity_worker.database.upgrade import upgrade_tables

#: Where alembic keeps which changes were made.
VERSION_TABLE = "activitypool_schema"


def upgrade(connection: Connection) -> None:
    """Make the changes that are missing; a database that a newer program has changed is used as it is."""
    upgrade_tables(connection, Path(__file__).parent, VERSION_TABLE)
