"""Changes of the task store's tables, in order; made when a store is opened."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

#: Where alembic keeps which changes were made.
VERSION_TABLE = "activitypool_schema"


def upgrade(connection: Connection) -> None:
    """Make the changes that are missing; a database that a newer program has changed is used as it is."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    options = {"version_table": VERSION_TABLE}
    there = MigrationContext.configure(connection, opts=options).get_current_revision()
    if there is not None and there not in known:
        # A newer program has been here. Its changes only add, so that old and new work side by side.
        return
    command.upgrade(config, "head")
