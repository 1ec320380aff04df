"""Bringing a store's tables up to date with alembic."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection


def upgrade_tables(connection: Connection, folder: Path, version_table: str) -> None:
    """Make the changes of a folder that are missing; a database that a newer program has changed is used as it is.

    `version_table` is where alembic keeps which changes were made; the folder's `env.py` names the same.
    """
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    options = {"version_table": version_table}
    there = MigrationContext.configure(connection, opts=options).get_current_revision()
    if there is not None and there not in known:
        # A newer program has been here. Its changes only add, so that old and new work side by side.
        return
    command.upgrade(config, "head")
